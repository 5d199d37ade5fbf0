"""Reference of append_paged_mla_kv_cache: returns what the caches hold afterwards."""

import torch

def append(cache, values, batch_indices, positions, kv_indices, kv_indptr):
    cache = cache.clone()
    pages, page_size = cache.shape[:2]
    indices, indptr = kv_indices.tolist(), kv_indptr.tolist()
    for token, (request, position) in enumerate(zip(batch_indices.tolist(), positions.tolist())):
        if request < 0 or request + 1 >= len(indptr) or position < 0:
            continue
        i = indptr[request] + position // page_size
        if i < min(indptr[request + 1], len(indices)) and 0 <= indices[i] < pages:
            cache[indices[i], position % page_size] = values[token]
    return cache


@torch.no_grad()
def run(ckv_cache, kpe_cache, ckv, kpe, batch_indices, positions, kv_indices, kv_indptr):
    slots = (batch_indices, positions, kv_indices, kv_indptr)
    return append(ckv_cache, ckv, *slots), append(kpe_cache, kpe, *slots)
