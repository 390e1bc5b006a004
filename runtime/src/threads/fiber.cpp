#include "threads/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <utility>

#include <strata/runtime/assert.h>

// Sanitizers keep books of each stack and are told when it changes.
#if defined(__SANITIZE_ADDRESS__)
#define STRATA_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STRATA_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define STRATA_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STRATA_FIBER_TSAN 1
#endif
#endif
#if defined(STRATA_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(STRATA_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace strata::detail {
namespace {

constexpr std::size_t kPage = 4096, kStack = std::size_t{8} << 20;  // as that of a thread

}  // namespace

struct Fiber::Impl {
  /// Address space of which only what is touched takes memory; the page below faults.
  class Stack {
   public:
    Stack()
        : base_(::mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0)) {
      STRATA_ASSERT(base_ != MAP_FAILED, "no address space for the stack of a fiber");
      STRATA_ASSERT(::mprotect(base_, kPage, PROT_NONE) == 0, "the stack of a fiber has no guard page");
    }
    ~Stack() { ::munmap(base_, kPage + kStack); }
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;
    void* data() const noexcept { return static_cast<char*>(base_) + kPage; }

   private:
    void* const base_;
  };
  /// One side of a change of stacks, as the sanitizers see it.
  struct Side {
    ucontext_t context{};
#if defined(STRATA_FIBER_ASAN)
    void* fake_stack = nullptr;
    const void* bottom = nullptr;
    std::size_t bytes = 0;
#elif defined(STRATA_FIBER_TSAN)
    void* fiber = nullptr;
#endif
  };

  // Runs first on the new stack. `from`: the side that was left.
  static void arrive([[maybe_unused]] Side& at, [[maybe_unused]] Side& from) {
#if defined(STRATA_FIBER_ASAN)
    __sanitizer_finish_switch_fiber(at.fake_stack, &from.bottom, &from.bytes);
#endif
  }

  static void change(Side& from, Side& to, [[maybe_unused]] bool for_good) {
#if defined(STRATA_FIBER_ASAN)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.bottom, to.bytes);
#elif defined(STRATA_FIBER_TSAN)
    __tsan_switch_to_fiber(to.fiber, 0);
#endif
    STRATA_ASSERT(::swapcontext(&from.context, &to.context) == 0, "the stack of a fiber cannot be changed");
    arrive(from, to);
  }

  explicit Impl(std::function<void()> body) : function(std::move(body)) {}
  static void enter(unsigned high, unsigned low) noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto& self = *reinterpret_cast<Impl*>(std::uintptr_t{high} << 32 | low);
    arrive(self.inside, self.outside);
    self.function();
    self.has_ended = true;
    change(self.inside, self.outside, true);
  }

  std::function<void()> function;
  Stack stack;
  Side inside, outside;
  bool has_ended = false;
};

Fiber::Fiber(std::function<void()> function) : impl_(std::make_unique<Impl>(std::move(function))) {
  Impl::Side& inside = impl_->inside;
  STRATA_ASSERT(::getcontext(&inside.context) == 0, "a fiber has no context");
  inside.context.uc_stack.ss_sp = impl_->stack.data();
  inside.context.uc_stack.ss_size = kStack;
  inside.context.uc_link = nullptr;
#if defined(STRATA_FIBER_ASAN)
  inside.bottom = impl_->stack.data();
  inside.bytes = kStack;
#elif defined(STRATA_FIBER_TSAN)
  inside.fiber = __tsan_create_fiber(0);
#endif
  // Arguments of makecontext() are ints.
  const auto self = reinterpret_cast<std::uintptr_t>(impl_.get());
  ::makecontext(&inside.context, reinterpret_cast<void (*)()>(&Impl::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() {
#if defined(STRATA_FIBER_TSAN)
  __tsan_destroy_fiber(impl_->inside.fiber);
#endif
}

void Fiber::resume() {
  STRATA_ASSERT(!impl_->has_ended, "a fiber that has ended is resumed");
#if defined(STRATA_FIBER_TSAN)
  impl_->outside.fiber = __tsan_get_current_fiber();
#endif
  Impl::change(impl_->outside, impl_->inside, false);
}

void Fiber::suspend() { Impl::change(impl_->inside, impl_->outside, false); }

bool Fiber::has_ended() const noexcept { return impl_->has_ended; }

}  // namespace strata::detail
