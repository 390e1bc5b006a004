#pragma once

#include "machine.h"

namespace strata {

/// First values, and reading and writing all states payload by payload in bounded memory (one window slot).
class StateAccess {
 public:
  explicit StateAccess(Machine& machine) : machine_(machine) {}
  Status initialize(std::uint64_t seed);
  Status visit(Payload payload, const Engine::Visit& visit);
  Status fill(Payload payload, const Engine::Fill& fill);

 private:
  template <class OneTensor>
  Status fill_chunks(Payload payload, const OneTensor& one);
  Machine& machine_;
};

}  // namespace strata
