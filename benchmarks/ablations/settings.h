/* The settings that are linked into one program, by name. */
#ifndef ABLATIONS_SETTINGS_H
#define ABLATIONS_SETTINGS_H

#include "../sweeps/launch.h"

#include <map>
#include <string>

typedef harness::Launch Prepare(int n);

inline std::map<std::string, Prepare *> &settings()
{
    static std::map<std::string, Prepare *> all;
    return all;
}

inline bool list(const char *name, Prepare *prepare)
{
    return settings().emplace(name, prepare).second;
}

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

#endif
