/* What a library finds that was installed with it. Arguments: the library, the folders for parbake_use_bundles or "-",
 * and "default", "open", or "both" for the second and then the first. Prints "open", or the code of the error that it
 * failed with. */

#include "parbake.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*use_bundles_function)(const char *);
typedef int (*default_function)(parbake_library **, parbake_error **);
typedef int (*open_function)(const char *const *, size_t, parbake_library **, parbake_error **);
typedef const char *(*code_function)(const parbake_error *);

/* A pointer to a function, from one to an object: C has no cast for it. */
#define FIND(variable, name)                       \
    do {                                           \
        void *found = dlsym(loaded, name);         \
        if (!found) {                              \
            return 2;                              \
        }                                          \
        memcpy(&(variable), &found, sizeof found); \
    } while (0)

int main(int count, char **words)
{
    void *loaded = count == 4 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (!loaded) {
        return 2;
    }
    use_bundles_function use_bundles;
    default_function lend;
    open_function open_own;
    code_function code;
    FIND(use_bundles, "parbake_use_bundles");
    FIND(lend, "parbake_default");
    FIND(open_own, "parbake_open");
    FIND(code, "parbake_error_code");
    if (strcmp(words[2], "-") != 0 && use_bundles(words[2]) != 0) {
        return 2;
    }
    const char *const settings[] = {"PARBAKE_JIT", "off"};
    parbake_library *library;
    parbake_error *error;
    int result = PARBAKE_OK;
    if (strcmp(words[3], "default") != 0) {
        result = open_own(settings, 1, &library, &error);
    }
    if (result == PARBAKE_OK && strcmp(words[3], "open") != 0) {
        result = lend(&library, &error);
    }
    puts(result == PARBAKE_OK ? "open" : code(error));
    return 0;
}
