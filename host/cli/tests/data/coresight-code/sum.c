/* Adds up numbers. */
__attribute__((noinline)) static int sum(int count)
{
    int sum = 0;
    for (int number = 1; number <= count; number++)
        if (number != 2)
            sum += number * number;
    return sum;
}

int main(void)
{
    return sum(3) - sum(0);
}
