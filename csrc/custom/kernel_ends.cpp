/* Linked behind the kernel's code: ../cpu/runaway.cpp. */
extern "C" __attribute__((visibility("hidden"))) void own_kernel_ends();
void own_kernel_ends() {}
