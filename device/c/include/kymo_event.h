/* User-defined events with typed fields: declared once, written in place, described in the ELF file.
 *
 *     #define SENSOR(FIELD) FIELD(u8, channel) FIELD(u8, state) FIELD(f32, volts)
 *     KYMO_EVENT(sensor, 7, SENSOR);
 *     KYMO_EVENT_LABELS(sensor, state, "0=idle 1=busy");
 *
 *     KYMO_RECORD(sensor, .channel = 3, .state = 1, .volts = 1.5f);
 *
 * An event is a record of kymo_reserve() (kymo.h), whose type is the number after the event's name. Its bytes are the
 * packed fields and nothing else. Their description is in a section of the ELF file that is not loaded (.kymo.events),
 * so that names and labels cost no flash, no RAM and no instruction. `kymo` decodes such records with --elf.
 *
 * The field expressions are not evaluated while nothing is recorded.
 *
 * Types of fields: u8 u16 u32 u64, i8 i16 i32 i64, x8 x16 x32 x64 (shown in hexadecimal), f32 f64, text8 text16 text32
 * text64 (char arrays; shorter texts end with 0), bytes4 bytes8 bytes16 bytes32. An array of any of them has its length
 * behind its name (a number, or a macro that expands to one): FIELD(u16, samples[4]). Up to 1024 bytes a field.
 */
#ifndef KYMO_EVENT_H
#define KYMO_EVENT_H

#include "kymo.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_EVENT_MEMBER_u8(name_) uint8_t name_;
#define KYMO_EVENT_MEMBER_u16(name_) uint16_t name_;
#define KYMO_EVENT_MEMBER_u32(name_) uint32_t name_;
#define KYMO_EVENT_MEMBER_u64(name_) uint64_t name_;
#define KYMO_EVENT_MEMBER_i8(name_) int8_t name_;
#define KYMO_EVENT_MEMBER_i16(name_) int16_t name_;
#define KYMO_EVENT_MEMBER_i32(name_) int32_t name_;
#define KYMO_EVENT_MEMBER_i64(name_) int64_t name_;
#define KYMO_EVENT_MEMBER_x8(name_) uint8_t name_;
#define KYMO_EVENT_MEMBER_x16(name_) uint16_t name_;
#define KYMO_EVENT_MEMBER_x32(name_) uint32_t name_;
#define KYMO_EVENT_MEMBER_x64(name_) uint64_t name_;
#define KYMO_EVENT_MEMBER_f32(name_) float name_;
#define KYMO_EVENT_MEMBER_f64(name_) double name_;
#define KYMO_EVENT_MEMBER_text8(name_) char name_[8];
#define KYMO_EVENT_MEMBER_text16(name_) char name_[16];
#define KYMO_EVENT_MEMBER_text32(name_) char name_[32];
#define KYMO_EVENT_MEMBER_text64(name_) char name_[64];
#define KYMO_EVENT_MEMBER_bytes4(name_) uint8_t name_[4];
#define KYMO_EVENT_MEMBER_bytes8(name_) uint8_t name_[8];
#define KYMO_EVENT_MEMBER_bytes16(name_) uint8_t name_[16];
#define KYMO_EVENT_MEMBER_bytes32(name_) uint8_t name_[32];

#define KYMO_EVENT_MEMBER(type_, name_) KYMO_EVENT_MEMBER_##type_(name_)
#define KYMO_EVENT_TEXT(type_, name_) " " #type_ " " KYMO_EVENT_STRING(name_)
#define KYMO_EVENT_STRING(text_) KYMO_EVENT_STRING_(text_)
#define KYMO_EVENT_STRING_(text_) #text_

/* Adds a text to the section of descriptions. */
#define KYMO_EVENT_DESCRIBE(text_) \
	__asm__(".pushsection .kymo.events,\"\",%progbits\n\t.asciz \"" text_ "\"\n\t.popsection")

/* Declares an event, outside of functions. Arguments: its name, its type (a number from 1 to 65535, or a macro that
 * expands to one), and the macro that lists its fields. May be used in a header. */
#define KYMO_EVENT(name_, type_, fields_)                                                         \
	struct kymo_event_##name_ {                                                               \
		fields_(KYMO_EVENT_MEMBER)                                                        \
	} __attribute__((packed, aligned(4)));                                                    \
	enum { kymo_event_type_##name_ = (type_) };                                               \
	KYMO_ASSERT((type_) >= 1 && (type_) <= 65535, "the type must be from 1 to 65535");        \
	KYMO_EVENT_DESCRIBE(KYMO_EVENT_STRING(type_) " " #name_ fields_(KYMO_EVENT_TEXT))

/* Names the values of a field: "0=idle 1=busy". */
#define KYMO_EVENT_LABELS(name_, field_, labels_) KYMO_EVENT_DESCRIBE(#name_ "." #field_ " " labels_)

#ifdef __cplusplus
#define KYMO_EVENT_VALUE(name_, ...) kymo_event_##name_{__VA_ARGS__}
#else
#define KYMO_EVENT_VALUE(name_, ...) (struct kymo_event_##name_){__VA_ARGS__}
#endif

/* Records an event with these fields; omitted fields are 0. (In C++ in the order of their declaration.) */
#define KYMO_RECORD(name_, ...)                                                                   \
	do {                                                                                      \
		struct kymo_event_##name_ *record_ = KYMO_EVENT_RESERVE(name_);                   \
		if (record_ != NULL) {                                                            \
			*record_ = KYMO_EVENT_VALUE(name_, __VA_ARGS__);                          \
			kymo_commit(record_, kymo_event_type_##name_);                            \
		}                                                                                 \
	} while (0)

/* Record an event in two steps, for fields that are not one expression each. KYMO_EVENT_RESERVE returns NULL if nothing
 * is recorded. Otherwise fill all of the record (its initial contents are undefined) and commit it at once. */
#define KYMO_EVENT_RESERVE(name_) \
	((struct kymo_event_##name_ *)kymo_reserve(sizeof(struct kymo_event_##name_)))
#define KYMO_EVENT_COMMIT(name_, record_) kymo_commit((record_), kymo_event_type_##name_)

/* Fills a text field, truncating the text to the field's size. */
#define KYMO_EVENT_SET_TEXT(field_, text_) kymo_event_set_text((field_), sizeof(field_), (text_))

__attribute__((unused, no_instrument_function)) static inline void kymo_event_set_text(char *field, size_t size,
											const char *text)
{
	for (size_t n = 0; n < size; n++) {
		field[n] = *text;
		if (*text != 0)
			text++;
	}
}

#ifdef __cplusplus
}
#endif

#endif
