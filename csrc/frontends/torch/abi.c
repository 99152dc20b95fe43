#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

TorchAbi torch_abi;

/* A function of the ABI, and where its address goes. */
typedef struct {
    const char *name;
    size_t place;
} Function;
#define FUNCTION(member, name)                                                                     \
    {                                                                                              \
        name, offsetof(TorchAbi, member)                                                           \
    }

static const Function for_all[] = {
    FUNCTION(float32, "aoti_torch_dtype_float32"),
    FUNCTION(float16, "aoti_torch_dtype_float16"),
    FUNCTION(bfloat16, "aoti_torch_dtype_bfloat16"),
    FUNCTION(cpu, "aoti_torch_device_type_cpu"),
    FUNCTION(cuda, "aoti_torch_device_type_cuda"),
    FUNCTION(implement, "aoti_torch_library_init_impl"),
    FUNCTION(add_kernel, "torch_library_impl"),
    FUNCTION(delete_library, "aoti_torch_delete_library_object"),
    FUNCTION(dims, "aoti_torch_get_dim"),
    FUNCTION(sizes, "aoti_torch_get_sizes"),
    FUNCTION(strides, "aoti_torch_get_strides"),
    FUNCTION(dtype, "aoti_torch_get_dtype"),
    FUNCTION(device_type, "aoti_torch_get_device_type"),
    FUNCTION(device_index, "aoti_torch_get_device_index"),
    FUNCTION(const_data, "torch_get_const_data_ptr"),
    FUNCTION(mutable_data, "torch_get_mutable_data_ptr"),
    FUNCTION(empty, "aoti_torch_empty_strided"),
    FUNCTION(delete_tensor, "aoti_torch_delete_tensor_object"),
    FUNCTION(copy, "aoti_torch_copy_"),
    FUNCTION(string_data, "torch_string_c_str"),
    FUNCTION(delete_string, "torch_delete_string"),
    FUNCTION(check, "aoti_torch_check"),
    FUNCTION(cpu_mm, "aoti_torch_cpu_mm_out"),
    FUNCTION(cpu_bmm, "aoti_torch_cpu_bmm_out"),
};

static const Function for_cuda[] = {
    FUNCTION(cuda_mm, "aoti_torch_cuda_mm_out"),
    FUNCTION(cuda_bmm, "aoti_torch_cuda_bmm_out"),
    FUNCTION(current_stream, "aoti_torch_get_current_cuda_stream"),
};

/* The name of the first function that the library lacks; NULL if it has all. */
static const char *find(void *library, const Function *functions, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        void *const address = dlsym(library, functions[i].name);
        if (!address) {
            return functions[i].name;
        }
        memcpy((char *)&torch_abi + functions[i].place, &address, sizeof address);
    }
    return NULL;
}

static void find_optional(void *library, const char *name, void *place)
{
    void *const address = dlsym(library, name);
    memcpy(place, &address, sizeof address);
}

Status torch_abi_open(void)
{
    /* The libraries' own names: the path differs between wheels, conda and distributions. */
    void *const library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    if (!library) {
        return status_error(STATUS_INVALID,
                            "this process has not loaded libtorch_cpu.so: import torch before");
    }
    find_optional(library, "aoti_torch_abi_version", &torch_abi.version);
    const uint64_t version = torch_abi.version ? torch_abi.version() : 0;
    if (version < TORCH_WRITTEN_FOR) {
        return status_error(STATUS_UNSUPPORTED, "its stable C interface is older");
    }
    const char *missing = find(library, for_all, sizeof for_all / sizeof *for_all);
    if (missing) {
        return status_error(STATUS_UNSUPPORTED, "it lacks the function %s", missing);
    }
    find_optional(library, "torch_exception_get_what_without_backtrace", &torch_abi.last_error);

    const void *(*context)(void);
    find_optional(library, "_ZN2at13globalContextEv", &context);
    find_optional(library, "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE",
                  &torch_abi.precision);
    if (context && torch_abi.precision) {
        torch_abi.context = context();
    } else {
        torch_abi.precision = NULL;
    }

    void *const cuda = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    missing = cuda ? find(cuda, for_cuda, sizeof for_cuda / sizeof *for_cuda) : NULL;
    return missing ? status_error(STATUS_UNSUPPORTED, "it lacks the function %s", missing)
                   : status_ok();
}

const char *torch_dtype_name(int32_t dtype)
{
    static const char *const names[] = {
        "float16",       "bfloat16",        "float32",     "float64",
        "int8",          "int16",           "int32",       "int64",
        "uint8",         "uint16",          "uint32",      "uint64",
        "bool",          "complex32",       "complex64",   "complex128",
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"};
    void *const library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; library && i < sizeof names / sizeof *names; ++i) {
        char getter[64];
        snprintf(getter, sizeof getter, "aoti_torch_dtype_%s", names[i]);
        int32_t (*code)(void);
        find_optional(library, getter, &code);
        if (code && code() == dtype) {
            return names[i];
        }
    }
    return "another dtype";
}

const char *torch_dtype_conversion(const char *name, bool allows_16_bits)
{
    return strncmp(name, "complex", 7) == 0                    ? "real.float()"
           : allows_16_bits && strncmp(name, "float8", 6) == 0 ? "bfloat16()"
                                                               : "float()";
}
