"""Images: data files made for answers on this machine (design §5, decision 17)."""

from app.storage.images.folder import ABSENT, DELETED, Answer, ImageProgress, Images

__all__ = ["ABSENT", "DELETED", "Answer", "ImageProgress", "Images"]
