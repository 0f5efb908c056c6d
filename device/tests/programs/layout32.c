/* Checks the sizes in kymo.h on a 32-bit machine; the library's source asserts its own. */
#include "kymo.h"

_Static_assert(sizeof(kymo_config_t) == 128, "kymo_config_t");
_Static_assert(offsetof(kymo_config_t, clock_hz) == 88, "clock_hz");
_Static_assert(offsetof(kymo_config_t, build_id_note) == 116, "build_id_note");
_Static_assert(sizeof(kymo_promotion_t) == 8, "kymo_promotion_t");
_Static_assert(sizeof(kymo_slot_t) == 48, "kymo_slot_t");
_Static_assert(sizeof(kymo_frame_t) == 32, "kymo_frame_t");
_Static_assert(sizeof(kymo_retained_t) == 64, "kymo_retained_t");
