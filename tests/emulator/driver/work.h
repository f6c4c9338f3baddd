// Streams: queues of work. Work runs when a thread waits for it, or at random, in any permitted
// order.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "basics.h"

struct Context;
struct Stream;

// The end of some work in a stream. Without work, it is reached.
struct Mark {
    std::shared_ptr<Stream> stream;
    u64 number = 0;

    bool is_reached() const;
};

struct Work {
    std::function<void()> run;
    // The mark that must be reached before.
    Mark after;
};

struct Stream {
    Context *context;
    std::deque<Work> works;
    u64 num_done = 0;
    bool is_captured = false;
};

class Queue {
  public:
    void add(const std::shared_ptr<Stream> &stream, Work work);
    // Returns the end of the current work of a stream.
    Mark end_of(const std::shared_ptr<Stream> &stream) const;
    // Returns the ends of all streams of a context that have work.
    std::vector<Mark> ends_of(const Context *context) const;
    // Runs the next work of some stream. Returns false if there is none.
    bool do_any();
    // Runs some work. Repeated calls eventually run the work that an unreached mark needs.
    enum class Way { ANY, ONLY_NEEDED, OTHERS_FIRST };
    void do_one(const Mark &mark, Way way);

  private:
    std::vector<std::shared_ptr<Stream>> ready(const Stream *but) const;
    void do_first_of(std::shared_ptr<Stream> stream);

    // The streams that have work.
    std::vector<std::shared_ptr<Stream>> busy;
};
