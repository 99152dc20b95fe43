#include "planning.h"

#include <stdio.h>

#include "../../emulator/tensor_core_model.h"
#include "../../gemm/plan/plan.h"
#include "../../runtime/kept_proofs.h"

/* In the order of the fields of PlanConstants. */
#define CONSTANT(name, value) #name,
#define TILE(BM, BN, BK, ...) "slots_" #BM "x" #BN "x" #BK,
static const char *const names[] = {PLAN_CONSTANTS(CONSTANT) TILES(TILE)};
#undef TILE
#undef CONSTANT
enum { COUNT = sizeof names / sizeof *names };

static PyObject *dict_of(const PlanConstants *constants)
{
    PyObject *const found = PyDict_New();
    const double *const values = (const double *)constants;
    for (int i = 0; found && i < COUNT; ++i) {
        PyObject *const value = PyFloat_FromDouble(values[i]);
        if (!value || PyDict_SetItemString(found, names[i], value) < 0) {
            Py_XDECREF(value);
            Py_DECREF(found);
            return NULL;
        }
        Py_DECREF(value);
    }
    return found;
}

static bool constants_of_dict(PyObject *dict, PlanConstants *constants)
{
    double *const values = (double *)constants;
    for (int i = 0; i < COUNT; ++i) {
        PyObject *const value = PyDict_GetItemString(dict, names[i]);
        values[i] = value ? PyFloat_AsDouble(value) : -1;
        if (PyErr_Occurred()) {
            return false;
        }
        if (!(values[i] > 0 && values[i] < 1e9)) {
            PyErr_Format(PyExc_ValueError, "%s must be a number above 0 and below 1e9", names[i]);
            return false;
        }
    }
    return true;
}

const char plan_constants_doc[] =
    "The constants of the cost model for a GPU model: a dict from name to value.";

PyObject *plan_constants_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *model;
    return PyArg_ParseTuple(args, "s", &model) ? dict_of(plan_constants(model)) : NULL;
}

const char keep_plan_constants_doc[] =
    "Replaces the constants of the cost model for a GPU model. Must be called before the first\n"
    "product on such a GPU.";

PyObject *keep_plan_constants(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *model;
    PyObject *given;
    PlanConstants constants;
    if (!PyArg_ParseTuple(args, "sO!", &model, &PyDict_Type, &given) ||
        !constants_of_dict(given, &constants)) {
        return NULL;
    }
    plan_keep(model, &constants);
    return Py_NewRef(Py_None);
}

const char plan_constants_of_sheet_doc[] =
    "_plan_constants_of_sheet(major, minor, clock, memory_clock, memory_bus_bits, "
    "multiprocessors)\n"
    "\n"
    "The constants of the cost model by a GPU's data sheet: a dict, or None for a GPU that needs\n"
    "none or is not in the table. Both clocks have the same unit.";

PyObject *plan_constants_by_sheet(PyObject *Py_UNUSED(module), PyObject *args)
{
    GpuFigures gpu;
    PlanConstants constants;
    if (!PyArg_ParseTuple(args, "iiiiii", &gpu.capability[0], &gpu.capability[1], &gpu.clock,
                          &gpu.memory_clock, &gpu.memory_bus_bits, &gpu.multiprocessors)) {
        return NULL;
    }
    return plan_constants_of_sheet(&gpu, &constants) ? dict_of(&constants) : Py_NewRef(Py_None);
}

const char plan_prefers_mixed_doc[] =
    "_plan_prefers_mixed(multiprocessors, M, N, K, of_B, is_split)\n"
    "\n"
    "Whether `mixed` is estimated to be faster than `auto` with a float32 copy of the operand of\n"
    "16 bits, A or B, for K-major matrices on a GPU of compute capability 9.0. is_split: the fp16\n"
    "pairs of the other operand exist.";

PyObject *plan_prefers_mixed_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PlanDevice device = {0, CLUSTER_MOST_BLOCKS, 227 * 1024, &plan_fitted};
    long long M, N, K;
    int of_B, is_split;
    if (!PyArg_ParseTuple(args, "iLLLpp", &device.multiprocessors, &M, &N, &K, &of_B, &is_split)) {
        return NULL;
    }
    _Alignas(16) static float A[4], B[4]; /* two matrices, both aligned */
    const Sgemm problem = {.A = {A, M, K, K, 1, 0},
                           .B = {B, K, N, 1, K, 0},
                           .C = {NULL, M, N, N, 1, 0},
                           .alpha = 1,
                           .count = 1};
    const Sgemm oriented = of_B ? sgemm_transposed(&problem) : problem;
    return PyBool_FromLong(plan_prefers_mixed(&oriented, is_split, &device));
}

const char plan_estimate_doc[] =
    "_plan_estimate(constants, multiprocessors, cluster, shared_bytes, rate, start, M, N, K)\n"
    "\n"
    "The estimated cycles of simt and of mma, and the multiply-adds of mma's busiest\n"
    "multiprocessor, for a product of aligned row-major matrices on a GPU with these figures.";

PyObject *plan_estimate_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given;
    PlanConstants constants;
    PlanDevice device;
    Proof proof = {.rate = 0};
    long long M, N, K;
    if (!PyArg_ParseTuple(args, "O!iiiddLLL", &PyDict_Type, &given, &device.multiprocessors,
                          &device.widest_cluster, &device.shared_bytes, &proof.rate, &proof.start,
                          &M, &N, &K) ||
        !constants_of_dict(given, &constants)) {
        return NULL;
    }
    device.constants = &constants;
    const Sgemm problem = {.A = {NULL, M, K, K, 1, 0},
                           .B = {NULL, K, N, N, 1, 0},
                           .C = {NULL, M, N, N, 1, 0},
                           .alpha = 1,
                           .beta = 0,
                           .count = 1};
    const PlanShape shape = plan_shape(&problem);
    Plan plans[PLANS_MOST];
    const int count = plan_list(&shape, &device, plans); /* the cache would remember `constants` */
    const Plan fallback = plan_fallback();
    double simt = plan_estimate(&fallback, &problem, &device);
    for (int i = 0; i < count; ++i) {
        simt = plans[i].cycles < simt ? plans[i].cycles : simt;
    }
    const TensorCores cores = {false, &proof, device.multiprocessors, device.shared_bytes};
    double multiply_adds;
    const double mma = plan_estimate_mma(&problem, &cores, &multiply_adds);
    return Py_BuildValue("ddd", simt, mma, multiply_adds);
}

const char keep_proof_doc[] =
    "_keep_proof(model, major, minor, rate, start)\n"
    "\n"
    "From now on, auto uses mma on GPUs of this name and compute capability. The last two are\n"
    "the constants of its estimate (csrc/gemm/plan/proofs.h).";

PyObject *keep_proof(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *model;
    Proof proof;
    if (!PyArg_ParseTuple(args, "siidd", &model, &proof.capability[0], &proof.capability[1],
                          &proof.rate, &proof.start)) {
        return NULL;
    }
    snprintf(proof.model, sizeof proof.model, "%s", model);
    if (!proof_keep(&proof)) {
        return PyErr_Format(PyExc_ValueError,
                            "rate and start must be numbers above 0 and below 1e9");
    }
    return Py_NewRef(Py_None);
}

const char read_kept_proofs_doc[] =
    "_read_kept_proofs()\n"
    "\n"
    "Keeps the proofs in the user's file (csrc/runtime/kept_proofs.h) for this process.";

PyObject *read_kept_proofs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    kept_proofs_read();
    return Py_NewRef(Py_None);
}

const char cpu_tensor_cores_doc[] =
    "The tensor cores of the CPU device: (major, minor) of the compute capability, the products\n"
    "that are added at once, and the bits that are kept below the largest exponent.";

PyObject *cpu_tensor_cores_of(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    const TensorCoreModel model = cpu_tensor_cores();
    return Py_BuildValue("iiii", model.major, model.minor, model.products, model.bits);
}

const char set_cpu_tensor_cores_doc[] =
    "Replaces the tensor cores of the CPU device, for all threads.";

PyObject *set_cpu_tensor_cores(PyObject *Py_UNUSED(module), PyObject *args)
{
    TensorCoreModel model;
    if (!PyArg_ParseTuple(args, "iiii", &model.major, &model.minor, &model.products, &model.bits)) {
        return NULL;
    }
    if (!cpu_tensor_cores_set(&model)) {
        return PyErr_Format(PyExc_ValueError,
                            "the CPU device cannot add %d products with %d bits: the first must "
                            "divide 16, and the second be 1 to 25",
                            model.products, model.bits);
    }
    return Py_NewRef(Py_None);
}
