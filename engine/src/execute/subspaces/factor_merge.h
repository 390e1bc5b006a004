#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <strata/engine/run_plan.h>
#include <strata/graph/passes.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/session/state_piece.h>

namespace strata::detail {

/// The groups whose matrices are in one chunk, and the values of their factors while the product of these is
/// added to the matrices. Groups outlive it.
class FactorMerge {
 public:
  /// A matrix and the product that is added to it.
  struct Product {
    const LoraGroup* group = nullptr;
    std::int64_t columns = 0;
    std::vector<float> a, b;  ///< the values of group->a and group->b
  };

  void add(const LoraGroup& group, std::int64_t columns);
  /// Both factors of all groups.
  std::vector<std::string> factors() const;
  /// Sets the factors. It refers to the object, as editor() does.
  VisitState reader();
  /// Forgets the groups whose trained factor is all zero.
  void drop_zeros();
  /// The matrices of the groups that are left, and their trained factors.
  std::vector<std::string> matrices() const;
  std::vector<std::string> trained() const;
  /// Adds the products to pieces of the matrices.
  FillState editor(ThreadPool& pool) const;

 private:
  std::vector<Product> products_;
};

/// Sorts groups by the chunks of their matrices. Errors: `invalid`, all problems at once: a group without a
/// basis, a parameter that the run lacks, or one of another size.
Result<std::vector<FactorMerge>> merges_by_chunk(const RunPlan& plan, std::span<const LoraGroup> groups);

/// Adds scale B A to elements from `offset` on of the product's matrix. Every element's sum is in the order
/// of the ranks, whatever the piece and the threads.
void add_product(const FactorMerge::Product& product, std::int64_t offset, std::span<float> values,
                 ThreadPool& pool);

}  // namespace strata::detail
