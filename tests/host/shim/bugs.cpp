// Runs one kernel of bugs.cu under the given seeds and prints one line: shim: ..., NaN ..., output ... or same.
// usage: bugs NAME SEED...
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>
#include "host/pb_host.h"
struct Params {
    float* out;
    const float* in;
    uint32_t* word;
    int n;
};
typedef int entry_fn(pb_host_launch*, const void*, char*, size_t);
int main(int argc, char** argv) {
    auto* f = (entry_fn*)dlsym(RTLD_DEFAULT, argv[1]);
    if (!f) {
        puts("no such kernel");
        return 9;
    }
    const std::string n = argv[1];
    const bool grid = n.find("block") != n.npos || n.find("grid") != n.npos || n.find("flag_") != n.npos,
               coop = grid && n != "spin_on_absent_block";
    const unsigned blocks = grid ? 4 : 1;
    const size_t outs = n == "blocks_write_same_cell" ? 8 : blocks * 256;
    std::vector<float> first;
    for (int i = 2; i < argc; i++) {
        std::vector<float> in(256), out(outs, -1);
        std::vector<uint32_t> w(1);
        for (int j = 0; j < 256; j++) in[j] = (float)j;
        Params p{out.data(), in.data(), w.data(), 5};
        pb_host_launch l{{blocks, 1, 1}, {256, 1, 1}, 1024, coop, 0, strtoull(argv[i], 0, 10), 0, 0};
        char err[2048] = "";
        if (f(&l, &p, err, sizeof err)) {
            for (char* c = err; *c; c++)
                if (*c == '\n') *c = ';';
            printf("shim: %s\n", err);
            return 3;
        }
        for (float v : out)
            if (v != v) {
                printf("NaN in the output (seed %s)\n", argv[i]);
                return 4;
            }
        if (first.empty()) first = out;
        else if (memcmp(first.data(), out.data(), 4 * out.size())) {
            printf("output depends on the schedule (seed %s)\n", argv[i]);
            return 5;
        }
    }
    puts("same");
    return 0;
}
