"""The training loss: true labels and, where there is a teacher, its soft labels."""

import torch.nn.functional as F
from torch import Tensor


def distillation_loss(
    logits: Tensor, labels: Tensor, teacher_logits: Tensor, weight: float, temperature: float
) -> Tensor:
    """Return `(1 - weight) · CE + weight · T² · KL(teacher ‖ student)` at temperature T, a scalar.

    Hinton, Vinyals, Dean 2015 (arXiv 1503.02531); the factor T² keeps the gradient's size when T changes.

    Args:
        logits: of the student, shape (B, num_labels).
        labels: true classes, shape (B,).
        teacher_logits: of the dense model, shape (B, num_labels).
        weight: share of the soft labels, in [0, 1].
        temperature: T > 0.
    """
    student = F.log_softmax(logits / temperature, dim=-1)
    teacher = F.log_softmax(teacher_logits / temperature, dim=-1)
    soft = F.kl_div(student, teacher, reduction="batchmean", log_target=True)
    return (1 - weight) * F.cross_entropy(logits, labels) + weight * temperature**2 * soft
