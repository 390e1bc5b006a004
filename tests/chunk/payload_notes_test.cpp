// Tests that the notes of a chunk manager in a trace lead to the spans of the work that moved and used each
// payload.
#include <algorithm>
#include <string>

#include "chunk/chunk_fixture.h"

namespace strata {
namespace {

using test::param;

ChunkLayout two_chunks() { return test::small_layout(2); }
Placement placement_of_two() {
  return test::with_homes(
      test::with_homes(test::bare_placement(two_chunks(), 1, 1), Payload::param, Tier::nvme), Payload::accum,
      Tier::pinned);
}

/// A manager over parameters that live on nvme, whose streams and decisions are traced.
class TracedFixture : public test::ChunkEnvironment {
 public:
  TracedFixture()
      : ChunkEnvironment(two_chunks(), placement_of_two()),
        trace(clock),
        manager(must(
            ChunkManager::create(layout, placement, uses, slabs(), *backend, mover, all_budgets(), &trace))) {
    for (Stream* stream : {&compute, &h2d, &d2h, &cpu}) backend->set_trace(*stream, &trace);
  }
  ~TracedFixture() { synchronize(); }

  void work(Stream& stream, const char* label) {
    must(backend->host_call_async(HostCall(
                                      label, +[](const int&, ThreadPool&) {}, 0),
                                  stream));
  }
  /// The labels of the spans that a note refers to.
  std::vector<std::string> work_of(const Trace::Note& note) {
    std::vector<std::string> labels;
    for (const Trace::TrackSpans& track : trace.spans())
      for (const Trace::Span& span : track.spans)
        if (span.work.queue == note.last.queue && span.work.number > note.after &&
            span.work.number <= note.last.number)
          labels.push_back(track.name + ": " + span.label);
    return labels;
  }
  std::string text_of(const Trace::Note& note) {
    return str(note.what, " ", note.kind, note.number, " ", note.place);
  }

  Trace trace;
  std::unique_ptr<ChunkManager> manager;
};

TEST(PayloadNotesTest, TellWhichWorkMovedAndUsedAPayload) {
  TracedFixture f;
  {
    const ChunkPin pin = must(f.manager->pin(param(1), Tier::pinned, Intent::overwrite, f.cpu));
    f.work(f.cpu, "make");
  }
  must(f.manager->write_back(param(1)));
  must(f.manager->write_backs().wait_all());
  must(f.manager->evict(param(1), Tier::pinned));
  f.work(f.compute, "before");
  {
    const ChunkPin pin = must(f.manager->pin(param(1), Tier::device, Intent::read, f.compute));
    f.work(f.compute, "first");
    f.work(f.compute, "second");
  }
  f.work(f.compute, "after");
  f.synchronize();
  std::vector<std::string> texts;
  const std::vector<Trace::Note> notes = f.trace.all_notes();
  for (const Trace::Note& note : notes) texts.push_back(f.text_of(note));
  ASSERT_EQ(texts, (std::vector<std::string>{"plan 0 ", "overwrite param1 pinned", "write param1 nvme",
                                             "absent param1 pinned", "read param1 pinned",
                                             "copy param1 device", "use param1 device"}));
  EXPECT_EQ(f.work_of(notes[1]), std::vector<std::string>{"cpu: make"});
  EXPECT_EQ(notes[2].last.queue, Trace::Work::kStore);
  EXPECT_EQ(notes[2].last.number, 1u) << "the first request";
  EXPECT_EQ(notes[4].last.number, 2u);
  EXPECT_EQ(f.work_of(notes[5]), std::vector<std::string>{"h2d: copy"});
  EXPECT_EQ(f.work_of(notes[6]), (std::vector<std::string>{"compute: first", "compute: second"}));
}

TEST(PayloadNotesTest, TellThatContentsBecomeThoseOfAnotherPayload) {
  TracedFixture f;
  const PayloadKey grad{0, Payload::grad};
  { const ChunkPin pin = must(f.manager->pin(grad, Tier::pinned, Intent::overwrite, f.cpu)); }
  must(f.manager->transfer(grad, {0, Payload::accum}, Tier::pinned));
  std::vector<std::string> texts;
  for (const Trace::Note& note : f.trace.all_notes()) texts.push_back(f.text_of(note));
  EXPECT_EQ(texts, (std::vector<std::string>{"plan 0 ", "overwrite grad0 pinned", "give grad0 pinned",
                                             "take accum0 pinned", "absent grad0 pinned"}));
}

TEST(PayloadNotesTest, AreNotTakenWhileTheTraceIsDisabled) {
  TracedFixture f;
  f.trace.set_enabled(false);
  { const ChunkPin pin = must(f.manager->pin(param(0), Tier::pinned, Intent::overwrite, f.cpu)); }
  f.trace.set_enabled(true);
  EXPECT_EQ(f.trace.all_notes().size(), 1u) << "that of the plan";
}

}  // namespace
}  // namespace strata
