/* Module methods that read and replace what the planner knows of a GPU: the constants of simt's
 * cost model, the proof of tensor cores, and the tensor cores of the CPU device. */
#ifndef SGEMM_PYTHON_PLANNING_H
#define SGEMM_PYTHON_PLANNING_H

#include "python.h"

extern const char plan_constants_doc[], keep_plan_constants_doc[];
extern const char plan_constants_of_sheet_doc[], plan_estimate_doc[], plan_prefers_mixed_doc[],
    keep_proof_doc[], read_kept_proofs_doc[];
extern const char cpu_tensor_cores_doc[], set_cpu_tensor_cores_doc[];
PyObject *plan_constants_of(PyObject *module, PyObject *args);
PyObject *keep_plan_constants(PyObject *module, PyObject *args);
PyObject *plan_constants_by_sheet(PyObject *module, PyObject *args);
PyObject *plan_estimate_of(PyObject *module, PyObject *args);
PyObject *plan_prefers_mixed_of(PyObject *module, PyObject *args);
PyObject *keep_proof(PyObject *module, PyObject *args);
PyObject *read_kept_proofs(PyObject *module, PyObject *args);
PyObject *cpu_tensor_cores_of(PyObject *module, PyObject *args);
PyObject *set_cpu_tensor_cores(PyObject *module, PyObject *args);

#endif
