#define _GNU_SOURCE /* dladdr, dl_iterate_phdr, RTLD_NEXT */
#include "own_blas.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "imports.h"
#include "say.h"
#include "settings.h"
#include "width.h"

/* How many objects the loader has added and removed so far. After a change, an address can belong
 * to another object. */
typedef struct {
    unsigned long long added, removed;
} Loads;

static int read_loads(struct dl_phdr_info *object, size_t bytes, void *context)
{
    (void)bytes;
    *(Loads *)context = (Loads){object->dlpi_adds, object->dlpi_subs};
    return 1;
}

static Loads loads_now(void)
{
    Loads loads = {0, 0};
    dl_iterate_phdr(read_loads, &loads);
    return loads;
}

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

static Own function_in(void *library, const char *name)
{
    void *const function = library ? dlsym(library, name) : NULL;
    const size_t length = strlen(name);
    const bool is_plain = length < 3 || strcmp(name + length - 3, "64_") != 0;
    return is_own(function) ? (Own){function, !is_plain || width_is_64(function), NULL}
                            : (Own){NULL, false, NULL};
}

static void *named;

static void open_named(void)
{
    const char *const path = settings()->library;
    named = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && !named) {
        say("ignoring SGEMM_KERNELS_BLAS_LIBRARY: %s", dlerror());
    }
}

/* The function in a library that the user names, also without the prefix of SciPy's builds. */
static Own in_named(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_named);
    const Own own = function_in(named, name);
    return own.function || strncmp(name, "scipy_", 6) != 0 ? own : function_in(named, name + 6);
}

/* Searches a loaded object and the libraries that it was linked with. */
static Own in_loaded(const char *path, const char *name)
{
    void *const object = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    const Own own = function_in(object, name);
    if (object) {
        dlclose(object);
    }
    return own;
}

/* The paths of loaded objects, one after the other. */
typedef struct {
    const char *imported; /* only objects that import this name; NULL: all */
    char *paths;
    size_t bytes;
} Objects;

static int note_object(struct dl_phdr_info *object, size_t bytes, void *context)
{
    (void)bytes;
    Objects *const objects = context;
    const size_t length = object->dlpi_name ? strlen(object->dlpi_name) : 0;
    const bool counts = !objects->imported || imports(object, objects->imported);
    char *const longer =
        length && counts ? realloc(objects->paths, objects->bytes + length + 1) : NULL;
    if (longer) {
        memcpy(longer + objects->bytes, object->dlpi_name, length + 1);
        objects->paths = longer;
        objects->bytes += length + 1;
    }
    return 0;
}

/* Searches loaded objects. The loader holds a lock while it lists them, so they are opened
 * afterwards: otherwise a thread that opens a library could wait for this one forever.
 *
 * Prefers a function with 32-bit integers: with sizes below 2^31 it computes the same for a caller
 * that passes 64-bit integers, but not the other way around. */
static Own in_any_object(const char *name, bool only_importing)
{
    Objects objects = {.imported = only_importing ? name : NULL};
    Own own = {NULL, false, NULL};
    dl_iterate_phdr(note_object, &objects);
    for (size_t at = 0; at < objects.bytes && (!own.function || own.wide);
         at += strlen(objects.paths + at) + 1) {
        const Own found = in_loaded(objects.paths + at, name);
        own = !own.function || (found.function && !found.wide) ? found : own;
    }
    free(objects.paths);
    return own;
}

/* The object of the caller. `only_importing`: if it imports the name. Otherwise the caller is not
 * the code that called the function: that code ended with a jump to it. */
static Own in_callers_object(const void *caller, const char *name, bool only_importing)
{
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && *info.dli_fname &&
                   (!only_importing || imports_at(info.dli_fbase, name))
               ? in_loaded(info.dli_fname, name)
               : (Own){NULL, false, NULL};
}

/* The function of a caller whose object imports the name. */
static Own in_importing_caller(const void *caller, const char *name)
{
    Own own = in_callers_object(caller, name, true);
    if (own.wide) {
        const Own other = in_any_object(name, true);
        own.narrow = other.wide ? NULL : other.function;
    }
    return own;
}

static Own find(const char *name, const void *caller)
{
    Own own = in_named(name);
    /* As the loader would have searched. Python opens NumPy's OpenBLAS with RTLD_LOCAL, therefore
     * RTLD_NEXT does not see it. */
    own = own.function ? own : function_in(RTLD_NEXT, name);
    own = own.function ? own : in_importing_caller(caller, name);
    own = own.function ? own : in_any_object(name, true);
    own = own.function ? own : in_callers_object(caller, name, false);
    return own.function ? own : in_any_object(name, false);
}

Own own_function(Entry entry, const void *caller)
{
    /* What callers in this thread got. A search takes tens of microseconds, loads_now() 0.05. */
    enum { SLOT_BITS = 5, SLOTS = 1 << SLOT_BITS };
    static _Thread_local struct {
        const void *caller;
        Entry entry;
        Loads loads;
        Own own;
    } known[SLOTS];
    const Loads loads = loads_now();
    const uint64_t spread =
        ((uintptr_t)caller + (uint64_t)entry) * 0x9e3779b97f4a7c15; /* Fibonacci hashing */
    const size_t slot = spread >> (64 - SLOT_BITS);
    if (known[slot].caller != caller || known[slot].entry != entry ||
        known[slot].loads.added != loads.added || known[slot].loads.removed != loads.removed) {
        known[slot].own = find(entry_names[entry], caller);
        known[slot].loads = loads;
        known[slot].entry = entry;
        known[slot].caller = caller;
    }
    return known[slot].own;
}

bool own_contains(const Own *own, const void *code)
{
    Dl_info library, info;
    return dladdr(own->function, &library) && dladdr(code, &info) &&
           library.dli_fbase == info.dli_fbase;
}
