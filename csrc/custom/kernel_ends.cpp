/* Linked after the kernel's code: see ../emulator/runaway.cpp. */
extern "C" __attribute__((visibility("hidden"))) void custom_kernel_ends();
void custom_kernel_ends() {}
