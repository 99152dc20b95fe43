/* Launches on a GPU, with copies of operands for a kernel that needs contiguous matrices. */
#ifndef SGEMM_CUDA_CONTIGUOUS_H
#define SGEMM_CUDA_CONTIGUOUS_H

#include "../../base/variant.h"

/* A matrix as a kernel that takes contiguous ones reads or writes it: the caller's, or a copy in
 * temporary memory of the stream, which is returned in the end. */
class Contiguous {
  public:
    Contiguous(const Matrix &given, const Launch *where) : given_(given), where_(where) {}
    Contiguous(const Contiguous &) = delete;
    Contiguous &operator=(const Contiguous &) = delete;
    ~Contiguous();

    /* `matrix` is to be used instead. With `filled`, it has the values of the given one. */
    Status prepare(bool filled, Matrix *matrix);

    /* Copies what a kernel wrote to the given matrix. */
    Status write_back() const;

  private:
    Matrix given_, copy_ = {};
    const Launch *where_;
    void *memory_ = nullptr;
};

/* The matrices of one product. */
class ContiguousProduct {
  public:
    ContiguousProduct(const Sgemm &given, const Launch *where)
        : given_(given), A_(given.A, where), B_(given.B, where), C_(given.C, where)
    {}

    /* `problem` is to be launched instead; write_back then. */
    Status prepare(Sgemm *problem);
    Status write_back() const
    {
        return C_.write_back();
    }

  private:
    Sgemm given_;
    Contiguous A_, B_, C_;
};

/* variant_launch on a GPU. A kernel that takes contiguous matrices gets one product at a time, and
 * copies of the matrices that are not contiguous, in temporary memory of the stream. */
Status launch_contiguous(const Variant *variant, const Sgemm *problem, const Launch *where,
                         int64_t *launched);

#endif
