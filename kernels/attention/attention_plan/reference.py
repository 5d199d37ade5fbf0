"""Reference of attention_plan: the same words, request by request and item by item."""

import torch

HEADER, START, ITEM = 16, 4, 12


def tile(asked, tokens, batch, group, qk_dim):
    """Rows of queries, keys, and blocks of a multiprocessor."""
    mean = tokens * group // max(batch, 1)
    rows = asked or (16 if mean <= 16 else 64 if mean <= 64 or qk_dim > 192 else 128)
    if qk_dim == 576:  # multi-head latent attention
        return (16, 32, 2) if rows == 16 else (64, 64, 1)
    if rows == 16:
        return 16, 64 if qk_dim <= 192 else 32, 2 if qk_dim == 192 else 3
    return rows, 128 if qk_dim <= 64 else 64 if qk_dim <= 128 else 32, 2


def words(n):
    """An integer of 64 bits as two of 32, the low one first, both signed."""
    low = n & 0xFFFFFFFF
    return [low - (1 << 32) if low >> 31 else low, n >> 32]


@torch.no_grad()
def run(
    plan,
    kv_indptr,
    qo_indptr,
    kv_last_page_len,
    tokens,
    qo_heads,
    kv_heads,
    qk_dim,
    page_size,
    causal,
    window_left,
    rows,
    processors,
    split_tiles,
):
    out, batch, group = plan.tolist(), len(kv_indptr) - 1, qo_heads // kv_heads
    rows, keys, per_processor = tile(rows, tokens, batch, group, qk_dim)
    blocks = processors * per_processor
    rest = len(out) - HEADER - START * (blocks + 1)
    capacity = rest // (ITEM + kv_heads)
    if capacity * kv_heads < blocks:
        capacity = (rest - blocks) // ITEM
    first_item = HEADER + START * (blocks + 1)
    tickets = first_item + ITEM * capacity

    items, cost, pieces = [], 0, 0
    for request in range(batch):
        pages = int(kv_indptr[request + 1] - kv_indptr[request])
        last = page_size if kv_last_page_len is None else int(kv_last_page_len[request])
        kv_len = (pages - 1) * page_size + last if pages > 0 else 0
        qo_len = tokens // batch if qo_indptr is None else int(qo_indptr[request + 1] - qo_indptr[request])
        for index in range(-(-max(qo_len, 0) * group // rows)):
            if len(items) == capacity:
                break
            early, late = index * rows // group, (min((index + 1) * rows, qo_len * group) - 1) // group
            first = max(early + kv_len - qo_len - window_left, 0) if window_left >= 0 else 0
            end = min(max(late + 1 + kv_len - qo_len, 0), kv_len) if causal else kv_len
            tiles = -(-end // keys) - first // keys if end > first else 0
            cost += (tiles + 1) * kv_heads
            at = first_item + len(items) * ITEM
            first_token = request * qo_len if qo_indptr is None else int(qo_indptr[request])
            of_request = [first_token, qo_len, kv_len, int(kv_indptr[request])]
            out[at : at + ITEM] = [*words(cost), *words(pieces), request, index, first // keys, tiles, *of_request]
            pieces += (-(-tiles // split_tiles) if split_tiles > 0 and tiles > 0 else 1) * kv_heads
            items.append((cost, tiles))

    per = max(-(-cost // blocks), 1)
    for block in range(blocks + 1):
        position = min(per * block, cost)
        item = sum(end <= position for end, _ in items)
        head = offset = 0
        if item < len(items):
            end, tiles = items[item]
            head, offset = divmod(position - (end - (tiles + 1) * kv_heads), tiles + 1)
            if split_tiles > 0:
                offset = -(-offset // split_tiles) * split_tiles
                if offset >= tiles and offset > 0:
                    head, offset = head + 1, 0
                    if head == kv_heads:
                        item, head = item + 1, 0
        out[HEADER + START * block : HEADER + START * (block + 1)] = [item, head, offset, 0]
    count = len(items) * kv_heads if split_tiles > 0 else blocks
    out[tickets : tickets + count] = [0] * count
    out[:8] = [*words(cost), *words(per), len(items), rows, keys, blocks]
    out[8:16] = [split_tiles, capacity, 0, 0, 0, 0, 0, 0]
    return torch.tensor(out, dtype=plan.dtype)
