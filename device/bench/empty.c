/* Empty hook: the minimal overhead of a hook is a call that returns. In a file of its own, so that the compiler does
 * not inline it. */
void empty_hook(const void *function, const void *call_site);

void empty_hook(const void *function, const void *call_site)
{
	(void)function;
	(void)call_site;
}
