#define _GNU_SOURCE /* dladdr, dl_iterate_phdr, RTLD_NEXT */
#include "own_blas.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

/* The function that each caller in this thread got last. Asking the loader costs 1.2 us. */
static _Thread_local struct {
    const void *caller;
    void *function;
} last[BLAS_ENTRY_COUNT];

static const char *base_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether calls of the function arrive somewhere else. They would not in this library, nor in
 * libblastrampoline, which forwards to the names that it finds first: ours. */
static bool is_own(void *function)
{
    Dl_info theirs, ours;
    return function && dladdr(function, &theirs) && dladdr(entry_names, &ours) &&
           theirs.dli_fbase != ours.dli_fbase &&
           !strstr(base_name(theirs.dli_fname), "blastrampoline");
}

static void *function_in(void *library, const char *name)
{
    void *const function = library ? dlsym(library, name) : NULL;
    return is_own(function) ? function : NULL;
}

/* The function in a library that the user names, also without the prefix of SciPy's builds. */
static void *in_named(const char *path, const char *name)
{
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *const function = function_in(library, name);
    return function || strncmp(name, "scipy_", 6) != 0 ? function : function_in(library, name + 6);
}

/* Searches a loaded object and the libraries that it was linked with. */
static void *in_loaded(const char *path, const char *name)
{
    void *const object = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *const function = function_in(object, name);
    if (object) {
        dlclose(object);
    }
    return function;
}

static void *in_callers_object(const void *caller, const char *name)
{
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && *info.dli_fname
               ? in_loaded(info.dli_fname, name)
               : NULL;
}

/* The paths of the loaded objects, one after the other. */
typedef struct {
    char *paths;
    size_t bytes;
} Objects;

static int note_object(struct dl_phdr_info *object, size_t bytes, void *context)
{
    (void)bytes;
    Objects *const objects = context;
    const size_t length = object->dlpi_name ? strlen(object->dlpi_name) : 0;
    char *const longer = length ? realloc(objects->paths, objects->bytes + length + 1) : NULL;
    if (longer) {
        memcpy(longer + objects->bytes, object->dlpi_name, length + 1);
        objects->paths = longer;
        objects->bytes += length + 1;
    }
    return 0;
}

/* Searches every loaded object. The loader holds a lock while it lists them, so they are opened
 * afterwards: otherwise a thread that opens a library could wait for this one forever. */
static void *in_any_object(const char *name)
{
    Objects objects = {NULL, 0};
    void *function = NULL;
    dl_iterate_phdr(note_object, &objects);
    for (size_t at = 0; at < objects.bytes && !function; at += strlen(objects.paths + at) + 1) {
        function = in_loaded(objects.paths + at, name);
    }
    free(objects.paths);
    return function;
}

static void *find(const char *name, const void *caller)
{
    const char *const named = settings()->library;
    void *function = named ? in_named(named, name) : NULL;
    function = function ? function : function_in(RTLD_NEXT, name);
    /* Python opens NumPy's OpenBLAS with RTLD_LOCAL, which RTLD_NEXT does not see. */
    function = function ? function : in_callers_object(caller, name);
    function = function ? function : in_any_object(name);
    if (!function) {
        fprintf(stderr,
                "sgemm_kernels: found no BLAS with %s: set SGEMM_KERNELS_BLAS_LIBRARY to the "
                "program's own BLAS, such as libopenblas.so.0\n",
                name);
        abort();
    }
    return function;
}

void *own_function(Entry entry, const void *caller)
{
    if (last[entry].caller != caller) {
        last[entry].function = find(entry_names[entry], caller);
        last[entry].caller = caller;
    }
    return last[entry].function;
}

bool own_is_wide(void *function)
{
    static void *_Atomic known; /* the last narrow function that was asked for */
    Dl_info info;
    if (function == known) {
        return false;
    }
    const bool wide =
        dladdr(function, &info) && strstr(base_name(info.dli_fname), "blas64") != NULL;
    if (!wide) {
        known = function;
    }
    return wide;
}
