/* Linked before the kernel's code: see ../emulator/runaway.cpp. */
extern "C" __attribute__((visibility("hidden"))) void custom_kernel_begins();
void custom_kernel_begins() {}
