"""Reference of chain_speculative_sampling in float64: the same random numbers, one request after the other."""

import torch

_MASK = 0xFFFFFFFF


def _uniform(seed, offset, row, draw):
    key = [seed & _MASK, seed >> 32 & _MASK]
    c = [offset & _MASK, offset >> 32 & _MASK, row, draw]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ key[0], b & _MASK, a >> 32 ^ c[3] ^ key[1], a & _MASK]
        key = [key[0] + 0x9E3779B9 & _MASK, key[1] + 0xBB67AE85 & _MASK]
    return (c[0] + 0.5) / 2**32


@torch.no_grad()
def run(accepted, emitted, draft_probs, draft_token_ids, target_probs, seeds=None, offsets=None, seed=0, offset=0):
    accepted, emitted = accepted.clone(), emitted.clone()
    rows, drafts, vocab = draft_probs.shape
    tokens = torch.full((rows, drafts + 1), -1, dtype=torch.int32, device=draft_probs.device)

    def of(many, one, row):
        return one if many is None else many[row if len(many) > 1 else 0].item()

    for row in range(rows):
        s, o = of(seeds, seed, row), of(offsets, offset, row)
        ids = draft_token_ids[row].tolist()

        def good(i, s=s, o=o, row=row, ids=ids):
            inside = 0 <= ids[i] < vocab
            u = _uniform(s, o, row, i)
            return inside and u * draft_probs[row, i, ids[i]].item() < target_probs[row, i, ids[i]].item()

        acceptable = [good(i) for i in range(drafts)]
        first = (acceptable + [False]).index(False)
        weights = target_probs[row, first]
        if first < drafts:
            rest = (weights - draft_probs[row, first]).clamp(min=0)
            weights = rest if rest.sum() > 0 else weights
        masses = weights.double().cumsum(0)
        u = _uniform(s, o, row, drafts)
        drawn = 0
        if masses[-1] > 0 and masses[-1].isfinite():
            drawn = int((masses > u * masses[-1]).nonzero()[0])
        tokens[row, : first + 1] = torch.tensor([*ids[:first], drawn])
        accepted[row] += sum(acceptable)
        emitted[row] += first
    return tokens, accepted, emitted
