#pragma once
#include <stdexcept>

template <typename T> __device__ __noinline__ T dot(const T *x, const T *y, int stride, int k)
{
    T sum = T(0);
    for (int i = 0; i < k; ++i) sum += x[i] * y[i * stride];
    return sum;
}

inline void fail() { throw std::runtime_error("host code"); }
