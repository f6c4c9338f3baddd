#include "work.h"

#include <algorithm>

bool Mark::is_reached() const { return !stream || stream->num_done >= number; }

void Queue::add(const std::shared_ptr<Stream> &stream, Work work) {
    if (stream->works.empty()) busy.push_back(stream);
    stream->works.push_back(std::move(work));
}

Mark Queue::end_of(const std::shared_ptr<Stream> &stream) const {
    return Mark{stream, stream->num_done + stream->works.size()};
}

std::vector<Mark> Queue::ends_of(const Context *context) const {
    std::vector<Mark> ends;
    for (const auto &stream : busy)
        if (stream->context == context) ends.push_back(end_of(stream));
    return ends;
}

std::vector<std::shared_ptr<Stream>> Queue::ready(const Stream *but) const {
    std::vector<std::shared_ptr<Stream>> ready;
    for (const auto &stream : busy)
        if (stream.get() != but && stream->works.front().after.is_reached())
            ready.push_back(stream);
    return ready;
}

void Queue::do_first_of(std::shared_ptr<Stream> stream) {
    stream->works.front().run();
    stream->works.pop_front();
    stream->num_done++;
    if (stream->works.empty()) busy.erase(std::find(busy.begin(), busy.end(), stream));
}

bool Queue::do_any() {
    auto streams = ready(nullptr);
    if (streams.empty()) return false;
    do_first_of(streams[chance.below((u32)streams.size())]);
    return true;
}

// Returns the stream whose next work must run before a mark can be reached.
static std::shared_ptr<Stream> needed_for(const Mark &mark) {
    std::shared_ptr<Stream> stream = mark.stream;
    // Work waits only for work that was enqueued before it, so this loop ends.
    for (;;) {
        if (stream->works.empty()) die("deadlock: a stream waits for work that was not enqueued");
        const Mark &after = stream->works.front().after;
        if (after.is_reached()) return stream;
        stream = after.stream;
    }
}

void Queue::do_one(const Mark &mark, Way way) {
    auto needed = needed_for(mark);
    if (way == Way::ONLY_NEEDED) return do_first_of(needed);
    auto streams = ready(way == Way::OTHERS_FIRST ? needed.get() : nullptr);
    do_first_of(streams.empty() ? needed : streams[chance.below((u32)streams.size())]);
}
