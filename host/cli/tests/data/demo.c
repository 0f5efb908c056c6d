/* The program that the fixtures pretend to trace: only its addresses, names and lines matter. */
const char frame_mark[] = "frame";

static volatile int sink;

__attribute__((noinline)) void leaf(void) { sink++; }

__attribute__((noinline)) int compute(int n)
{
    leaf();
    return n ? compute(n - 1) + 1 : 0;
}

__attribute__((noinline)) void thrower(void) { sink = 0; }

__attribute__((noinline)) void try_call(void) { thrower(); }

__attribute__((noinline)) void tick_handler(void) { sink++; }

__attribute__((noinline)) void worker(void) { compute(1); }

int main(void)
{
    compute(2);
    try_call();
    worker();
    tick_handler();
    return frame_mark[0];
}
