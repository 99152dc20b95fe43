// The program that the settings are linked into. `alternate N SETTING...` checks these settings and
// times them round-robin.
#include "settings.h"

#include "../sweeps/harness.cuh"

int main(int count, char **arguments)
{
    const int n = atoi(arguments[1]); // a multiple of every setting's tile
    std::vector<harness::Launch> launches;
    for (int i = 2; i < count; ++i) {
        launches.push_back(settings().at(arguments[i])(n));
    }
    measure(launches, n);
}
