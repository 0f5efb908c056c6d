/* Never run: a program that has the hooks, which it calls if it is compiled with -finstrument-functions. */
#define PLAIN __attribute__((no_instrument_function, noinline))

volatile unsigned entries;

PLAIN void __cyg_profile_func_enter(void *function, void *call_site)
{
	(void)function;
	(void)call_site;
	entries++;
}

PLAIN void __cyg_profile_func_exit(void *function, void *call_site)
{
	(void)function;
	(void)call_site;
	entries--;
}

__attribute__((noinline)) int leaf(int n)
{
	return n + 1;
}

int main(void)
{
	return leaf(1);
}
