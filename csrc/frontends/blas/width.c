#define _GNU_SOURCE /* dladdr, strcasestr */
#include "width.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* A function of this library itself, not of one that it was linked with. */
static void *function_of(const Dl_info *library, const char *name)
{
    void *const opened = dlopen(library->dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *const function = opened ? dlsym(opened, name) : NULL;
    Dl_info where;
    if (opened) {
        dlclose(opened);
    }
    return function && dladdr(function, &where) && where.dli_fbase == library->dli_fbase ? function
                                                                                         : NULL;
}

/* The library's own answer: 1 or 0; -1 if it has none. */
static int answer_of(const Dl_info *library)
{
    typedef char *Config(void);
    typedef long IntegerBits(void);
    Config *const openblas = (Config *)function_of(library, "openblas_get_config");
    if (openblas) {
        return strstr(openblas(), "USE64BITINT") != NULL;
    }
    IntegerBits *const blis =
        (IntegerBits *)function_of(library, "bli_info_get_blas_int_type_size");
    return blis ? (blis() & 0xff) == 64 : -1;
}

/* The base name, with the folder that contains it. */
static const char *last_folder_of(const char *path, const char *base)
{
    const char *at = base > path ? base - 1 : path;
    while (at > path && at[-1] != '/') {
        --at;
    }
    return at;
}

static bool name_tells(const char *path)
{
    /* Debian, Fedora (threads: o and p), BLIS, and ESSL. */
    static const char *const of_files[] = {"blas64", "blaso64", "blasp64", "blis64", "6464"};
    /* MKL, Arm, NVPL; AMD has a folder lib_ILP64. */
    static const char *const of_folders[] = {"ilp64", "int64"};
    const char *const slash = strrchr(path, '/'), *const base = slash ? slash + 1 : path;
    const char *const interface = getenv("MKL_INTERFACE_LAYER");
    bool tells = strstr(base, "mkl_rt") && interface && strcasestr(interface, "ilp64");
    for (size_t index = 0; index < sizeof of_files / sizeof *of_files; ++index) {
        tells = tells || strstr(base, of_files[index]);
    }
    for (size_t index = 0; index < sizeof of_folders / sizeof *of_folders; ++index) {
        tells = tells || strcasestr(last_folder_of(path, base), of_folders[index]);
    }
    return tells;
}

bool width_is_64(void *function)
{
    Dl_info library;
    if (!dladdr(function, &library) || !library.dli_fname) {
        return false;
    }
    const int answer = answer_of(&library);
    return answer >= 0 ? answer == 1 : name_tells(library.dli_fname);
}
