/* A user-defined back end for kymo_hooks.h: prints events of two numbers, and threads that get the processor. */
#include <stdio.h>

#define KYMO_HOOK_EVENT2(number_, event_, name_, value_, second_name_, second_) \
	printf(#event_ " " #name_ "=%d " #second_name_ "=%d\n", (int)(value_), (int)(second_))
#define KYMO_HOOK_THREAD_SWITCHED_IN(thread_) printf("thread_switched_in %d\n", (int)(thread_))
#define KYMO_HOOK_USER(id_, value_) printf("mine %d\n", (int)(id_) + (int)(value_))
