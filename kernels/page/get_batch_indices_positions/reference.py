"""Reference of get_batch_indices_positions. nnz is an extent of the outputs."""

import torch


@torch.no_grad()
def run(append_indptr, seq_lens, nnz):
    indptr, batch = append_indptr.long(), len(seq_lens)
    token = torch.arange(nnz, device=indptr.device)
    request = torch.searchsorted(indptr, token, right=True) - 1
    inside = (request >= 0) & (request < batch)
    request = torch.where(inside, request, -1)
    if batch == 0:
        return request.int(), request.int()
    position = token - indptr[1:][request] + seq_lens.long()[request]
    return request.int(), torch.where(inside, position, -1).int()
