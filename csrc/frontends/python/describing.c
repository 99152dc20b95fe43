#include "describing.h"

#include "../../runtime/catalog.h"
#include "choosing.h"
#include "lists.h"
#include "raising.h"

static PyObject *kinds_of(const Variant *variant)
{
    PyObject *const kinds = PyList_New(0);
    for (int kind = 0; kinds && kind < DEVICE_KINDS; ++kind) {
        if (device_kinds[kind] && variant->launch[kind]) {
            PyObject *const name = PyUnicode_FromString(device_kinds[kind]->name);
            if (!name || PyList_Append(kinds, name) < 0) {
                Py_XDECREF(name);
                Py_DECREF(kinds);
                return NULL;
            }
            Py_DECREF(name);
        }
    }
    PyObject *const result = kinds ? PyList_AsTuple(kinds) : NULL;
    Py_XDECREF(kinds);
    return result;
}

PyObject *describe_variant(const Variant *v)
{
    const KernelSpec *const spec = &v->spec;
    return Py_BuildValue(
        "{s:s, s:s, s:z, s:(iii), s:(ii), s:i, s:i, s:(ii), s:O, s:N}", "name", v->name, "summary",
        v->summary, "file", v->file, "block_tile", spec->block_tile[0], spec->block_tile[1],
        spec->block_tile[2], "thread_tile", spec->thread_tile[0], spec->thread_tile[1], "threads",
        spec->threads[0] * spec->threads[1], "shared_bytes",
        spec->static_bytes + spec->dynamic_bytes, "min_compute_capability",
        v->min_compute_capability[0], v->min_compute_capability[1], "architecture_specific",
        v->architecture_specific ? Py_True : Py_False, "devices", kinds_of(v));
}

PyObject *describe_variants(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *const list = PyList_New(0);
    for (const Variant *const *variant = catalog;
         list && *variant && append(list, describe_variant(*variant)); ++variant) {
    }
    return list ? as_tuple(list) : NULL;
}

static PyObject *number_or_none(int64_t number)
{
    return number ? PyLong_FromLongLong(number) : Py_NewRef(Py_None);
}

static PyObject *describe_device(PyObject *module, DeviceKind kind, int index)
{
    DeviceInfo info;
    const Device *const device = device_kinds[kind];
    const Status status = device->describe(index, &info);
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    const bool gpu = kind == DEVICE_CUDA;
    PyObject *const name = gpu ? PyUnicode_FromFormat("%s:%d", device->name, index)
                               : PyUnicode_FromString(device->name);
    PyObject *const capability =
        info.compute_capability[0]
            ? Py_BuildValue("(ii)", info.compute_capability[0], info.compute_capability[1])
            : Py_NewRef(Py_None);
    return Py_BuildValue(
        "{s:N, s:s, s:s, s:O, s:z, s:N, s:N, s:O, s:N, s:N, s:N, s:N, s:N, s:N, s:N, s:z, s:z}",
        "name", name, "kind", device->name, "model", info.model, "usable",
        info.problem[0] ? Py_False : Py_True, "problem", info.problem[0] ? info.problem : NULL,
        "compute_capability", capability, "multiprocessors", number_or_none(info.multiprocessors),
        "fused_multiply_add", info.fused_multiply_add ? Py_True : Py_False, "clock_mhz",
        number_or_none(info.clock_mhz), "memory_clock_mhz", number_or_none(info.memory_clock_mhz),
        "memory_bus_bits", number_or_none(info.memory_bus_bits), "memory_bytes",
        number_or_none(info.memory_bytes), "l2_bytes", number_or_none(info.l2_bytes),
        "shared_bytes_per_multiprocessor", number_or_none(info.shared_bytes_per_multiprocessor),
        "registers_per_multiprocessor", number_or_none(info.registers_per_multiprocessor), "driver",
        info.driver[0] ? info.driver : NULL, "pci_bus_id",
        info.pci_bus_id[0] ? info.pci_bus_id : NULL);
}

PyObject *describe_devices(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    PyObject *const list = PyList_New(0);
    int count;
    cuda_count(&count);
    for (int index = 0;
         list && index < count && append(list, describe_device(module, DEVICE_CUDA, index));
         ++index) {
    }
    if (list && !PyErr_Occurred()) {
        append(list, describe_device(module, DEVICE_CPU, 0));
    }
    return list ? as_tuple(list) : NULL;
}

PyObject *describe_cuda_problem(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    Status why;
    return first_usable_gpu(&why) >= 0 ? Py_NewRef(Py_None) : PyUnicode_FromString(why.message);
}

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

PyObject *describe_build(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
#if defined(SGEMM_HIP)
    const char *const toolkit = NULL, *const hip = SGEMM_TOOLKIT;
    const char *const architectures = SGEMM_ARCHITECTURES;
#elif defined(SGEMM_CUDA)
    const char *const toolkit = SGEMM_TOOLKIT, *const hip = NULL;
    const char *const architectures = SGEMM_ARCHITECTURES;
#else
    const char *const toolkit = NULL, *const hip = NULL, *const architectures = "";
#endif
    PyObject *const text = PyUnicode_FromString(architectures);
    PyObject *const list = text ? PyUnicode_Split(text, NULL, -1) : NULL;
    PyObject *const words = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(list);
    return Py_BuildValue("{s:s, s:z, s:z, s:N, s:s}", "csrc_hash", SGEMM_CSRC_HASH, "cuda_toolkit",
                         toolkit, "hip", hip, "architectures", words, "compiler", COMPILER);
}
