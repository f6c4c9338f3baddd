#include "memory.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>

// The number of guard bytes before and after a block.
static const size_t MARGIN = 256;
static const size_t MOST_FREED = 64 << 20;
// The byte values of unset and of freed memory: large numbers in every type.
static const int UNSET = 0xfb, GONE = 0xdd;

typedef std::array<u8, MARGIN> Margin;

// The guard bytes differ from each other, so that shifted guards of a neighbour do not match.
static Margin make_margin() {
    Margin margin;
    for (size_t n = 0; n < MARGIN; n++) margin[n] = (u8)(n * 181 + 47);
    return margin;
}

static const Margin margin = make_margin();

static const char *place_name(const Block &block) {
    return block.place == HOST ? "the host" : "a device";
}

static void check_margins_of(const Block &block, const char *after) {
    bool before = memcmp(block.bytes - MARGIN, margin.data(), MARGIN) == 0;
    if (before && memcmp(block.bytes + block.size, margin.data(), MARGIN) == 0) return;
    die("%s: bytes %s a block of %zu bytes of %s were changed", after, before ? "after" : "before",
        block.size, place_name(block));
}

static void check_gone(const Block &block, const char *after) {
    check_margins_of(block, after);
    // Every byte equals the byte before it.
    if (block.bytes[0] == GONE && memcmp(block.bytes, block.bytes + 1, block.size - 1) == 0) return;
    for (size_t n = 0; n < block.size; n++)
        if (block.bytes[n] != GONE)
            die("%s: byte %zu of a freed block of %zu bytes of %s was changed", after, n,
                block.size, place_name(block));
}

u8 *Memory::allocate(int place, size_t size) {
    if (size > SIZE_MAX / 2) return nullptr;
    size_t whole = (MARGIN + size + MARGIN + 255) / 256 * 256;
    u8 *start = (u8 *)std::aligned_alloc(256, whole);
    if (!start) return nullptr;
    u8 *bytes = start + MARGIN;
    memcpy(start, margin.data(), MARGIN);
    memset(bytes, UNSET, size);
    memcpy(bytes + size, margin.data(), MARGIN);
    blocks[bytes] = Block{next_number++, bytes, size, place};
    return bytes;
}

void Memory::free(const Block *block) {
    check_margins_of(*block, "free");
    memset(block->bytes, GONE, block->size);
    freed.push_back(*block);
    freed_bytes += block->size;
    blocks.erase(block->bytes);
    forget_freed(MOST_FREED);
}

void Memory::forget_freed(size_t most) {
    while (freed_bytes > most) {
        Block block = freed.front();
        freed.pop_front();
        freed_bytes -= block.size;
        check_gone(block, "some time ago");
        std::free(block.bytes - MARGIN);
    }
}

const Block *Memory::find(const void *address, size_t size) const {
    auto next = blocks.upper_bound((const u8 *)address);
    if (next == blocks.begin()) return nullptr;
    const Block &block = std::prev(next)->second;
    size_t start = (size_t)((const u8 *)address - block.bytes);
    return start <= block.size && size <= block.size - start ? &block : nullptr;
}

const Block *Memory::beginning_at(const void *address) const {
    auto found = blocks.find((const u8 *)address);
    return found == blocks.end() ? nullptr : &found->second;
}

bool Memory::touches(const void *address, size_t size) const {
    const u8 *start = (const u8 *)address;
    auto next = blocks.lower_bound(start + size);
    if (next == blocks.begin()) return false;
    const Block &block = std::prev(next)->second;
    return block.bytes + block.size > start;
}

void Memory::free_all(int place) {
    for (auto next = blocks.begin(); next != blocks.end();) {
        const Block *block = &(next++)->second;
        if (block->place == place) free(block);
    }
}

void Memory::check_margins(const char *after) const {
    for (const auto &entry : blocks) check_margins_of(entry.second, after);
}

void Memory::check_all(const char *after) const {
    check_margins(after);
    for (const Block &block : freed) check_gone(block, after);
}
