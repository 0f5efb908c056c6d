/* Calls a function so often that a small buffer does not hold it. */

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
