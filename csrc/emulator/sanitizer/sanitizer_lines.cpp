/* The lines of the kernel's calls, from a table in its object. */
#include <string.h>

#include <algorithm>

#include "sanitizer_parts.h"

/* Written by sgemm_kernels/custom/annotate_assembly.py as for ../access_trace/access_trace.cpp. */
struct CallSite {
    int32_t place;
    int32_t file;
    int32_t line;
};
extern "C" {
extern const CallSite __start_sgemm_call_sites[], __stop_sgemm_call_sites[];
/* For each of them: the line of the kernel's file where its code was inlined, or 0. */
extern const int32_t __start_sgemm_own_lines[];
}

namespace {

struct Known {
    uintptr_t address;
    Line line;
    bool own;
};

std::vector<Known> sites;       /* by site; the first is unknown */
std::vector<Site> by_address;   /* a hash table with open addressing */
std::vector<std::string> files; /* the kernel's own */

uintptr_t address_at(const int32_t &place)
{
    return reinterpret_cast<uintptr_t>(&place) + static_cast<intptr_t>(place);
}

size_t slot_of(uintptr_t address)
{
    return address * 0x9e3779b97f4a7c15u >> 20 & (by_address.size() - 1);
}

void read_sites()
{
    sites.assign(1, {0, {"", 0}, false});
    for (const CallSite *site = __start_sgemm_call_sites; site != __stop_sgemm_call_sites; ++site) {
        Line line = {reinterpret_cast<const char *>(address_at(site->file)), site->line};
        bool own = std::find(files.begin(), files.end(), line.file) != files.end();
        const int inlined_at = __start_sgemm_own_lines[site - __start_sgemm_call_sites];
        if (!own && inlined_at) {
            line = {files[0].c_str(), inlined_at};
            own = true;
        }
        sites.push_back({address_at(site->place), line, own});
    }
    std::sort(sites.begin(), sites.end(),
              [](const Known &one, const Known &other) { return one.address < other.address; });
    size_t slots = 1024;
    while (slots < 4 * sites.size()) {
        slots *= 2;
    }
    by_address.assign(slots, 0);
    for (size_t site = 1; site < sites.size(); ++site) {
        size_t slot = slot_of(sites[site].address);
        while (by_address[slot]) {
            slot = (slot + 1) % slots;
        }
        by_address[slot] = static_cast<Site>(site);
    }
}

} // namespace

void sanitizer_files(const char *names)
{
    for (const char *end; *names; names = *end ? end + 1 : end) {
        end = strchrnul(names, '/');
        files.emplace_back(names, end);
    }
    read_sites();
}

Site site_of(const void *returns_to)
{
    const auto address = reinterpret_cast<uintptr_t>(returns_to);
    for (size_t slot = slot_of(address); by_address[slot]; slot = (slot + 1) % by_address.size()) {
        if (sites[static_cast<size_t>(by_address[slot])].address == address) {
            return by_address[slot];
        }
    }
    return 0;
}

Line line_of(Site site)
{
    return sites[static_cast<size_t>(site)].line;
}

bool is_own(Site site)
{
    return sites[static_cast<size_t>(site)].own;
}

std::string name_of_line(Site site)
{
    const Line line = line_of(site);
    const std::string number = "line " + std::to_string(line.number);
    return is_own(site) || line.number == 0 ? number : number + " of " + line.file;
}

Site site_in_kernel(Site site)
{
    return running->depth > kernel_depth ? running->returns_to[kernel_depth] : site;
}

Site site_to_tell(Site site, int depth)
{
    if (depth <= kernel_depth || is_own(site)) {
        return site;
    }
    for (int call = std::min(depth, most_depth) - 1; call > kernel_depth; --call) {
        if (is_own(running->returns_to[call])) {
            return running->returns_to[call];
        }
    }
    return running->returns_to[kernel_depth];
}

Site site_to_tell(Site site)
{
    return site_to_tell(site, running->depth);
}

Site present_site()
{
    return site_to_tell(running->latest);
}
