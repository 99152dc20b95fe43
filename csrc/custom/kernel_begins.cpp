/* Linked before the kernel's code: see ../emulator/runaway.cpp. */
extern "C" __attribute__((visibility("hidden"))) void own_kernel_begins();
void own_kernel_begins() {}
