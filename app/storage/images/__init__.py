"""Images: data files made for answers on this machine (docs/decisions/0017)."""

from app.storage.images.folder import ABSENT, DELETED, Answer, ImageProgress, Images
from app.storage.images.read_bytes import ReadBytes, TooMuchAtOnce
from app.storage.images.room import RECENT_SECONDS

__all__ = ["ABSENT", "DELETED", "RECENT_SECONDS", "Answer", "ImageProgress", "Images", "ReadBytes", "TooMuchAtOnce"]
