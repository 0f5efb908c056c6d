/* Calls a function more often than a small buffer can record. */

__attribute__((noinline)) static void leaf(void)
{
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	for (int i = 0; i < 100000; i++) {
		leaf();
	}
	return 0;
}
