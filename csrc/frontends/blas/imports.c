#define _GNU_SOURCE /* dl_iterate_phdr */
#include "imports.h"

#include <stdint.h>
#include <string.h>

/* The loader has added the base to the addresses in most objects' dynamic sections, but not in
 * all. */
static const void *at(const struct dl_phdr_info *object, ElfW(Addr) address)
{
    return (const void *)(address < object->dlpi_addr ? object->dlpi_addr + address : address);
}

/* A dynamic symbol table. Names that an object imports come before those that it defines, if it has
 * a GNU hash table, and anywhere otherwise. */
typedef struct {
    const ElfW(Sym) * symbols;
    const char *strings;
    size_t imported; /* how many symbols to search */
} Symbols;

static Symbols symbols_of(const struct dl_phdr_info *object)
{
    Symbols found = {NULL, NULL, 0};
    const ElfW(Dyn) *entry = NULL;
    for (int index = 0; index < object->dlpi_phnum; ++index) {
        if (object->dlpi_phdr[index].p_type == PT_DYNAMIC) {
            entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[index].p_vaddr);
        }
    }
    const uint32_t *gnu_hash = NULL, *hash = NULL;
    for (; entry && entry->d_tag != DT_NULL; ++entry) {
        const void *const address = at(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB) {
            found.symbols = address;
        } else if (entry->d_tag == DT_STRTAB) {
            found.strings = address;
        } else if (entry->d_tag == DT_GNU_HASH) {
            gnu_hash = address;
        } else if (entry->d_tag == DT_HASH) {
            hash = address;
        }
    }
    found.imported = gnu_hash ? gnu_hash[1] : hash ? hash[1] : 0;
    return found;
}

bool imports(const struct dl_phdr_info *object, const char *name)
{
    const Symbols all = symbols_of(object);
    for (size_t index = 1; all.symbols && all.strings && index < all.imported; ++index) {
        const ElfW(Sym) *const symbol = &all.symbols[index];
        if (symbol->st_shndx == SHN_UNDEF && strcmp(all.strings + symbol->st_name, name) == 0) {
            return true;
        }
    }
    return false;
}

typedef struct {
    const void *base;
    const char *name;
    bool imports;
} Question;

static int ask(struct dl_phdr_info *object, size_t bytes, void *context)
{
    (void)bytes;
    Question *const question = context;
    for (int index = 0; index < object->dlpi_phnum; ++index) {
        const ElfW(Phdr) *const part = &object->dlpi_phdr[index];
        if (part->p_type == PT_LOAD &&
            (uintptr_t)question->base - (object->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            question->imports = imports(object, question->name);
            return 1;
        }
    }
    return 0;
}

bool imports_at(const void *base, const char *name)
{
    Question question = {base, name, false};
    dl_iterate_phdr(ask, &question);
    return question.imports;
}
