/* See kernel.h. */
#define SYS_REBOOT_COLD 1
void sys_reboot(int type);
