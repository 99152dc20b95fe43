/* Linked after the kernel's code: see ../emulator/runaway.cpp. */
extern "C" __attribute__((visibility("hidden"))) void own_kernel_ends();
void own_kernel_ends() {}
