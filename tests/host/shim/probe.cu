// Writes what the wrappers return, bit by bit. probe.txt holds the 32 x 40 words as an H200 returned them; the host
// target must return the same.
// Operands are small integers, so mma is exact in any order of summation; fragments are filled without assuming a
// layout.
#include "parbake/mma.cuh"
#include "parbake/vec.cuh"
#include "parbake/warp.cuh"

struct probe_params {
    pb::u32* out;
};
namespace pb {
template <class T> PB_FN u32 ints(int lane, int reg) {
    return convert<T>::pair((float)((lane * 7 + reg * 3) % 9 - 4), (float)((lane * 5 + reg * 11 + 2) % 7 - 3));
}
template <class T> PB_FN void probe_mma(u32* out, int lane) {
    const u32 a[4] = {ints<T>(lane, 0), ints<T>(lane, 1), ints<T>(lane, 2), ints<T>(lane, 3)};
    float d[4] = {(float)lane, (float)(lane * 2), (float)(lane * 3), (float)(lane * 4)};
    mma_16816<T>(d, a, ints<T>(lane, 4), ints<T>(lane, 5));
    for (int i = 0; i < 4; i++) out[i] = bits_of<u32>(d[i]);
}
}  // namespace pb
PB_KERNEL(pb_probe, probe_params, 32) {
    using namespace pb;
    PB_DYN_SMEM(smem);
    const int lane = (int)lane_id();
    u32* out = p.out + lane * 40;
    for (int c = 0; c < 4; c++)
        st<4>(smem + lane * 16 + c * 4, {{(u32)(lane * 8 + 2 * c) | (u32)(lane * 8 + 2 * c + 1) << 16}});
    __syncwarp();
    u32 r[4];
    ldmatrix_x4<false>(r, shared(smem + lane * 16));
    for (int i = 0; i < 4; i++) out[i] = r[i];
    ldmatrix_x4<true>(r, shared(smem + (lane ^ 5) * 16));
    for (int i = 0; i < 4; i++) out[4 + i] = r[i];
    probe_mma<bf16>(out + 8, lane);
    probe_mma<f16>(out + 12, lane);
    for (int i = 0; i < 8; i++) {  // roundings, subnormals, infinities, NaNs of both signs
        u32 b = 0x9e3779b9u * (u32)(lane * 8 + i + 1);
        const u32 edge[16] = {0,           0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00001u, 0xffa00000u,
                              0x3f808000u, 0x3f818000u, 0x477fefffu, 0x477ff000u, 0x33000000u, 0x33000001u,
                              0x387fffffu, 0x00000001u, 0x7f7fffffu, 0x3f801000u};
        if (lane < 2) b = edge[lane * 8 + i];
        else if (lane < 16) b = (b & 0x807fffffu) | (u32)(100 + (b >> 8) % 50) << 23;  // around the f16 range
        out[16 + i] = convert<bf16>::pair(bits_of<float>(b), 1.0f);
        out[24 + i] = convert<f16>::pair(bits_of<float>(b), -2.0f);
    }
    out[32] = shfl_up((u32)lane * 3, 5);
    out[33] = shfl_down((u32)lane * 3, 9);
    out[34] = shfl((u32)lane * 3, (lane * 7) & 31);
    out[35] = shfl_xor((u32)lane * 3, 19);
    out[36] = warp_ballot(lane % 3 == 1);
    out[37] = bits_of<u32>(to_f32(f16{(u16)(lane * 2011 + 1)}));
    out[38] = bits_of<u32>(to_f32(f16{(u16)(lane * 33)}));
    out[39] = bits_of<u32>(warp_sum((float)lane));
}
