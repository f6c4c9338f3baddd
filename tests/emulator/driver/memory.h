// Blocks of device and host memory, with guard bytes around them.
#pragma once

#include <deque>
#include <map>

#include "basics.h"

// The place of host memory that the driver has allocated: pinned memory.
const int HOST = -1;

struct Block {
    // A unique number. Two blocks may have the same address, one after the other.
    u64 number;
    u8 *bytes;
    size_t size;
    int place;
};

class Memory {
  public:
    // Returns uninitialised memory, aligned to 256 bytes, or null if there is not enough.
    u8 *allocate(int place, size_t size);
    // Frees a block, which must exist and have no pending work. Overwrites its bytes.
    void free(const Block *block);
    // Returns the block that contains the complete range, or null.
    const Block *find(const void *address, size_t size) const;
    // Returns the block that begins at the address, or null.
    const Block *beginning_at(const void *address) const;
    // Returns whether a block contains any bytes of the range.
    bool touches(const void *address, size_t size) const;
    // Frees all blocks of a place.
    void free_all(int place);
    // Ends the process if a guard byte has changed.
    void check_margins(const char *after) const;
    // Works like `check_margins`, and also ends the process if freed memory was written.
    void check_all(const char *after) const;

  private:
    void forget_freed(size_t most);

    std::map<const u8 *, Block> blocks;
    // The blocks that were freed last, to detect later writes to them.
    std::deque<Block> freed;
    size_t freed_bytes = 0;
    u64 next_number = 1;
};
