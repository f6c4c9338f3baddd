// Blocks of memory, of devices and of the host, with bytes around them that nobody may change.
#pragma once

#include <deque>
#include <map>

#include "basics.h"

// The place of memory that a driver has given to the host: "pinned".
const int HOST = -1;

struct Block {
    // No two blocks have one number, though they may have one address after each other.
    u64 number;
    u8 *bytes;
    size_t size;
    int place;
};

class Memory {
  public:
    // Returns garbage, aligned to 256 bytes; null if there is no more.
    u8 *allocate(int place, size_t size);
    // The block must be there, and work on it done. Its bytes are garbage from now on.
    void free(const Block *block);
    // The block that has all bytes of a range; null if there is none.
    const Block *find(const void *address, size_t size) const;
    // The block that begins there; null if there is none.
    const Block *beginning_at(const void *address) const;
    // Whether some bytes of a range are in a block.
    bool touches(const void *address, size_t size) const;
    // Frees all that is in a place.
    void free_all(int place);
    // Ends the process if a byte around a block has been changed.
    void check_margins(const char *after) const;
    // So, and if memory was written after it was freed.
    void check_all(const char *after) const;

  private:
    void forget_freed(size_t most);

    std::map<const u8 *, Block> blocks;
    // Those that were freed last, to see whether somebody still writes to them.
    std::deque<Block> freed;
    size_t freed_bytes = 0;
    u64 next_number = 1;
};
