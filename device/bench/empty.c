/* The least that a hook can cost: a call that returns. In a file of its own, so that it is called. */
void empty_hook(const void *function, const void *call_site);

void empty_hook(const void *function, const void *call_site)
{
	(void)function;
	(void)call_site;
}
