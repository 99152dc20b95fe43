/* The NVRTC functions that the package calls, for tests over the fake CUDA runtime. The machine
 * code is a text with the kernel's symbol; a source that contains "#error" does not compile. The
 * function named by FAKE_NVRTC_FAILS fails. FAKE_NVRTC_CODE replaces the word that marks machine
 * code for the runtime. FAKE_NVRTC_VERSION is the version instead of 13.0. The log of a compilation
 * has the options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *source, name[4096], symbol[100], options[4096];
    int failed;
} Program;

static int result(const char *function)
{
    const char *const wanted = getenv("FAKE_NVRTC_FAILS");
    return wanted && strcmp(wanted, function) == 0 ? 5 : 0;
}

const char *nvrtcGetErrorString(int code)
{
    return code ? "planted" : "none";
}

int nvrtcVersion(int *major, int *minor)
{
    const char *const version = getenv("FAKE_NVRTC_VERSION");
    sscanf(version ? version : "13.0", "%d.%d", major, minor);
    return result(__func__);
}

int nvrtcGetNumSupportedArchs(int *count)
{
    *count = 3;
    return result(__func__);
}

int nvrtcGetSupportedArchs(int *numbers)
{
    memcpy(numbers, (int[]){75, 80, 90}, 3 * sizeof *numbers);
    return result(__func__);
}

int nvrtcCreateProgram(Program **program, const char *source, const char *name, int count,
                       const char **headers, const char **names)
{
    (void)count, (void)headers, (void)names;
    *program = calloc(1, sizeof **program);
    (*program)->source = strdup(source);
    snprintf((*program)->name, sizeof(*program)->name, "%s", name);
    return result(__func__);
}

int nvrtcAddNameExpression(Program *program, const char *symbol)
{
    snprintf(program->symbol, sizeof program->symbol, "lowered_%s", symbol);
    return result(__func__);
}

int nvrtcCompileProgram(Program *program, int count, const char **options)
{
    for (int i = 0; i < count; ++i) {
        const size_t length = strlen(program->options);
        snprintf(program->options + length, sizeof program->options - length, "%s\n", options[i]);
    }
    program->failed = strstr(program->source, "#error") != NULL;
    return program->failed ? 6 : result(__func__);
}

int nvrtcGetProgramLogSize(Program *program, size_t *bytes)
{
    (void)program;
    *bytes = 5000;
    return 0;
}

int nvrtcGetProgramLog(Program *program, char *log)
{
    if (program->failed) {
        snprintf(log, 5000, "%s(7): error: as the source says", program->name);
    } else {
        snprintf(log, 5000, "%s", program->options);
    }
    return 0;
}

int nvrtcGetLoweredName(Program *program, const char *symbol, const char **lowered)
{
    (void)symbol;
    *lowered = program->symbol;
    return result(__func__);
}

int nvrtcGetCUBINSize(Program *program, size_t *bytes)
{
    (void)program;
    *bytes = 200;
    return result(__func__);
}

int nvrtcGetCUBIN(Program *program, char *code)
{
    const char *const word = getenv("FAKE_NVRTC_CODE");
    memset(code, 0, 200);
    snprintf(code, 200, "%s %s", word ? word : "fake", program->symbol);
    return result(__func__);
}

int nvrtcDestroyProgram(Program **program)
{
    free((*program)->source);
    free(*program);
    *program = NULL;
    return 0;
}
