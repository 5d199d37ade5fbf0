// Calls two ops of Parbake from C++: rmsnorm into another tensor, fused_add_rmsnorm in place. Results are compared with
// sums in double; then a call goes wrong on purpose, and the program asks where its kernels came from.
//
// Without options it runs on the CPU, through the host target. With PARBAKE_EXAMPLE_CUDA defined it runs on the first GPU.
// Ends with 0 if every number was right.

#include "parbake.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#ifdef PARBAKE_EXAMPLE_CUDA
#include <cuda_runtime.h>
#endif

namespace {

constexpr std::int64_t kRows = 64, kHidden = 1024;

// Every function gives 0 or the kind of its error, and an error object that must be freed.
void check(int result, parbake_error **error) {
    if (result != PARBAKE_OK) {
        std::fprintf(stderr, "%s\n", parbake_error_message(*error));
        parbake_error_free(*error);
        std::exit(1);
    }
}

#ifdef PARBAKE_EXAMPLE_CUDA

// Null: where the tensors are.
constexpr const char *kTarget = nullptr;
constexpr std::int32_t kDevice = PARBAKE_DEVICE_CUDA;

void check(cudaError_t code) {
    if (code != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
        std::exit(1);
    }
}

// Parbake takes any memory and any stream; these are the CUDA runtime's.
class Buffer {
public:
    Buffer(const std::vector<float> &values, cudaStream_t stream) : size_(values.size()), stream_(stream) {
        check(cudaMalloc(&data_, size_ * sizeof(float)));
        check(cudaMemcpyAsync(data_, values.data(), size_ * sizeof(float), cudaMemcpyHostToDevice, stream_));
    }
    ~Buffer() { cudaFree(data_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    void *data() { return data_; }
    std::vector<float> read() {
        std::vector<float> values(size_);
        check(cudaMemcpyAsync(values.data(), data_, size_ * sizeof(float), cudaMemcpyDeviceToHost, stream_));
        check(cudaStreamSynchronize(stream_));
        return values;
    }

private:
    std::size_t size_;
    cudaStream_t stream_;
    void *data_ = nullptr;
};

cudaStream_t make_stream() {
    cudaStream_t stream;
    check(cudaStreamCreate(&stream));
    return stream;
}

#else

// The host target has to be asked for: it is for correctness, and nobody should wait for it unawares.
constexpr const char *kTarget = "host";
constexpr std::int32_t kDevice = PARBAKE_DEVICE_CPU;

class Buffer {
public:
    Buffer(const std::vector<float> &values, void *) : values_(values) {}
    void *data() { return values_.data(); }
    std::vector<float> read() { return values_; }

private:
    std::vector<float> values_;
};

void *make_stream() { return nullptr; }

#endif

// A tensor is a view: DLPack's struct, so that those of a framework can be handed over as they are. `shape` must outlive
// the call. Without strides it is dense.
parbake_tensor view(Buffer &buffer, std::int64_t *shape, int ndim) {
    parbake_tensor tensor = {};
    tensor.data = buffer.data();
    tensor.device = {kDevice, 0};
    tensor.ndim = ndim;
    tensor.dtype = {PARBAKE_F32_CODE, PARBAKE_F32_BITS, 1};
    tensor.shape = shape;
    return tensor;
}

// The largest distance between `got` and the norm of rows, relative where numbers are large.
double distance(const std::vector<float> &got, const std::vector<double> &x, const std::vector<float> &weight) {
    double worst = 0;
    for (std::int64_t row = 0; row < kRows; row++) {
        double squares = 0;
        for (std::int64_t i = 0; i < kHidden; i++) {
            squares += x[row * kHidden + i] * x[row * kHidden + i];
        }
        const double scale = 1 / std::sqrt(squares / kHidden + PARBAKE_RMSNORM_EPS_DEFAULT);
        for (std::int64_t i = 0; i < kHidden; i++) {
            const double expected = x[row * kHidden + i] * scale * weight[i];
            const double off = std::fabs(got[row * kHidden + i] - expected) / (1 + std::fabs(expected));
            worst = std::isnan(off) ? INFINITY : std::fmax(worst, off);
        }
    }
    return worst;
}

}  // namespace

int main() {
    // One library for the process, with the settings in the environment. Opening it compiles nothing.
    parbake_library *library;
    parbake_error *error;
    check(parbake_default(&library, &error), &error);

    std::vector<float> x(kRows * kHidden), residual(kRows * kHidden), weight(kHidden);
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(i * 7919 % 1000) / 500 - 1;
        residual[i] = static_cast<float>(i * 104729 % 1000) / 250 - 2;
    }
    for (std::size_t i = 0; i < weight.size(); i++) {
        weight[i] = 1 + static_cast<float>(i % 16) / 16;
    }

    const auto stream = make_stream();
    Buffer out_buffer(std::vector<float>(x.size(), NAN), stream);
    Buffer x_buffer(x, stream), residual_buffer(residual, stream), weight_buffer(weight, stream);
    std::int64_t rows[] = {kRows, kHidden}, row[] = {kHidden};
    parbake_tensor out_view = view(out_buffer, rows, 2), x_view = view(x_buffer, rows, 2);
    parbake_tensor residual_view = view(residual_buffer, rows, 2), weight_view = view(weight_buffer, row, 1);

    // What is not there yet is found or compiled now, so that no call has to wait.
    char *json;
    check(parbake_prepare(library, "rmsnorm,fused_add_rmsnorm", "dtype=f32 block=512 rows=1 vec=16", kTarget, &json, &error), &error);
    parbake_text_free(json);

    // Outputs come first, then inputs, then scalars.
    check(parbake_rmsnorm(library, stream, kTarget, &out_view, &x_view, &weight_view, PARBAKE_RMSNORM_EPS_DEFAULT,
                          PARBAKE_RMSNORM_WEIGHT_BIAS_DEFAULT, &error),
          &error);
    const double norm = distance(out_buffer.read(), std::vector<double>(x.begin(), x.end()), weight);
    std::printf("rmsnorm: within %.1e of the sums in double\n", norm);

    // residual = x + residual; x = norm of that.
    check(parbake_fused_add_rmsnorm(library, stream, kTarget, &x_view, &residual_view, &weight_view,
                                    PARBAKE_FUSED_ADD_RMSNORM_EPS_DEFAULT,
                                    PARBAKE_FUSED_ADD_RMSNORM_WEIGHT_BIAS_DEFAULT, &error),
          &error);
    std::vector<double> sums(x.size());
    bool added = true;
    const std::vector<float> new_residual = residual_buffer.read();
    for (std::size_t i = 0; i < x.size(); i++) {
        sums[i] = static_cast<double>(x[i]) + residual[i];
        added = added && std::fabs(new_residual[i] - sums[i]) <= 1e-6;
    }
    const double fused = distance(x_buffer.read(), sums, weight);
    std::printf("fused_add_rmsnorm: within %.1e, the residual is %s\n", fused, added ? "right" : "wrong");

    // Everything is checked before anything is launched. The text says op, argument, what was expected and what came.
    weight_view.dtype = {PARBAKE_BF16_CODE, PARBAKE_BF16_BITS, 1};
    const int result = parbake_rmsnorm(library, stream, kTarget, &out_view, &x_view, &weight_view, 1e-6, 0.0, &error);
    std::printf("\na weight of bf16 among tensors of f32 is %s:\n%s\n", parbake_error_code(error),
                parbake_error_message(error));
    const bool refused = result == PARBAKE_ERROR_TYPE;
    parbake_error_free(error);

    check(parbake_explain(library, "rmsnorm", "dtype=f32 block=512 rows=1 vec=16", kTarget, &json, &error), &error);
    // What follows the decision says what the identities of the kernel are made of.
    const std::string answer = json;
    std::printf("\nwhere the kernel of rmsnorm came from:\n%s…\n", answer.substr(0, answer.find("\"help\"")).c_str());
    parbake_text_free(json);

    return norm < 1e-5 && fused < 1e-5 && added && refused ? 0 : 1;
}
