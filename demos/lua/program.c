/* The demonstration program: see program.h. All of this is instrumented. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>

#include "kymo.h"
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

extern const char program_script[];
extern const char program_script_end[];

static uint32_t crc_table[256];
static uint32_t rounds;
static volatile uint32_t samples;

/* Runs before main(). */
__attribute__((constructor)) static void make_crc_table(void)
{
	for (uint32_t n = 0; n < 256; n++) {
		uint32_t crc = n;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
		crc_table[n] = crc;
	}
}

/* Inlined as a rule: the compiler then calls the hooks in the middle of the caller. */
static inline uint32_t crc_step(uint32_t crc, unsigned char byte)
{
	return crc >> 8 ^ crc_table[(crc ^ byte) & 0xFF];
}

/* checksum(string): a function of Lua's that is written in C. */
static int checksum(lua_State *lua)
{
	size_t size;
	const char *text = luaL_checklstring(lua, 1, &size);
	uint32_t crc = ~0u;
	for (size_t i = 0; i < size; i++)
		crc = crc_step(crc, (unsigned char)text[i]);
	lua_pushinteger(lua, (lua_Integer)~crc);
	return 1;
}

static const luaL_Reg libraries[] = {
	{LUA_GNAME, luaopen_base},          {LUA_COLIBNAME, luaopen_coroutine},
	{LUA_TABLIBNAME, luaopen_table},    {LUA_STRLIBNAME, luaopen_string},
	{LUA_MATHLIBNAME, luaopen_math},
};

static void open_libraries(lua_State *lua)
{
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
		luaL_requiref(lua, libraries[i].name, libraries[i].func, 1);
		lua_pop(lua, 1);
	}
	lua_register(lua, "checksum", checksum);
}

void program_round(const char *who, uint32_t number)
{
	kymo_named_marker("round", number);
	lua_State *lua = luaL_newstate();
	if (!lua) {
		printf("%s: no memory\n", who);
		return;
	}
	open_libraries(lua);
	size_t size = (size_t)(program_script_end - program_script);
	int failed = luaL_loadbuffer(lua, program_script, size, "=script");
	if (!failed) {
		lua_pushstring(lua, who);
		lua_pushinteger(lua, number);
		failed = lua_pcall(lua, 2, 0, 0);
	}
	if (failed)
		printf("%s: %s\n", who, lua_tostring(lua, -1));
	lua_close(lua);
	__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) void program_first_round(const char *who)
{
	program_round(who, 1);
}

uint32_t program_rounds(void)
{
	return __atomic_load_n(&rounds, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ the interrupt's work */

/* A made-up signal, and three filters that a table of function pointers chains. */
static int32_t history[4];

static int32_t take_sample(void)
{
	static uint32_t noise = 1;
	noise = noise * 1664525u + 1013904223u;
	return (int32_t)(noise >> 20);
}

static int32_t smooth(int32_t value)
{
	int32_t sum = value;
	for (int i = 3; i > 0; i--) {
		history[i] = history[i - 1];
		sum += history[i];
	}
	history[0] = value;
	return sum / 4;
}

static int32_t clamp(int32_t value)
{
	return value > 4000 ? 4000 : value;
}

static int32_t scale(int32_t value)
{
	return value * 3 / 4;
}

static int32_t (*const filters[])(int32_t) = {smooth, clamp, scale};

void program_sample(void)
{
	int32_t value = take_sample();
	for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
		value = filters[i](value);
	samples = samples + 1;
}

uint32_t program_samples(void)
{
	return samples;
}
