// Streams: queues of work, which is done when somebody waits for it, or by chance, and in any order they allow.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "basics.h"

struct Context;
struct Stream;

// The end of some work in a stream; that of none is reached.
struct Mark {
    std::shared_ptr<Stream> stream;
    u64 number = 0;

    bool is_reached() const;
};

struct Work {
    std::function<void()> run;
    // What has to be reached before.
    Mark after;
};

struct Stream {
    Context *context;
    std::deque<Work> works;
    u64 num_done = 0;
};

class Queue {
  public:
    void add(const std::shared_ptr<Stream> &stream, Work work);
    // The end of what is in a stream now.
    Mark end_of(const std::shared_ptr<Stream> &stream) const;
    // The ends of all streams of a context that have work.
    std::vector<Mark> ends_of(const Context *context) const;
    // Does the work of some stream, if there is any.
    bool do_any();
    // Does some work, in the end that which is needed for a mark that is not reached.
    enum class Way { ANY, ONLY_NEEDED, OTHERS_FIRST };
    void do_one(const Mark &mark, Way way);

  private:
    std::vector<std::shared_ptr<Stream>> ready(const Stream *but) const;
    void do_first_of(std::shared_ptr<Stream> stream);

    // The streams that have work.
    std::vector<std::shared_ptr<Stream>> busy;
};
